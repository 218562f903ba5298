"""Plans for Kafka topics."""

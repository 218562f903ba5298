"""Reading and writing records through librdkafka."""

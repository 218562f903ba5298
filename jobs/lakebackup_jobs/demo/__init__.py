"""`make demo`, and the Kafka broker that it and the tests start."""

"""`make demo`, and the Kafka broker that the demo and the tests start."""

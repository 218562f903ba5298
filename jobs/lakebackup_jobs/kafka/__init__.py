"""Kafka: what a cluster says of itself, and the way its bytes flow in and out."""

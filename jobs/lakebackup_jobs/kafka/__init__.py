"""Kafka: the state of a cluster, its records in and out, and the format of data files."""

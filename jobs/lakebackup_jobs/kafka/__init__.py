"""Kafka: the state of a cluster, reading and writing its records, and the format of data files."""

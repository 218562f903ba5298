"""Spark tasks over an engine's queues."""

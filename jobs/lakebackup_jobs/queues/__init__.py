"""Queues: an engine's snapshot together with its queues."""

"""Plans for an engine's queues."""

"""Backups of an engine's queues."""

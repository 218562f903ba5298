"""Restores of an engine: its snapshot, its configuration, its queues' messages."""

"""Snapshots: sets of files, backed up and restored."""

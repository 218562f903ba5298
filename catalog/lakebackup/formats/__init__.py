"""Formats of files, ours and those of other programs: archives, logs, snapshots, queues."""

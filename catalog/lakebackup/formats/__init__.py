"""Formats of files, lakebackup's own and those of other programs: archives, logs, snapshots, queues."""

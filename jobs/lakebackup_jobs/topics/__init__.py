"""Kafka topics: backup, follow, restore, merge, compaction, consumer groups, forks."""

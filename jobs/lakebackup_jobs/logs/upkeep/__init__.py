"""Fulls, compaction and truncation of logs."""

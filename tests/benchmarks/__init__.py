"""Benchmarks of backup and restore, next to other tools on the same machine in the same run. Not tests."""

"""The format of cbbackup's archives: folders of SQLite files (.cbb) with JSON beside them.

The format follows couchbase-cli (`pump_bfd.py`); docs/archive.md describes it. Nothing here uses Spark, and
reading an archive never writes to it.
"""

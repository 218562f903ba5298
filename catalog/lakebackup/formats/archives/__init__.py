"""The format of cbbackup's archives: folders of SQLite files (.cbb) with JSON beside them.

Facts of the format are those of couchbase-cli (`pump_bfd.py`); docs/archive.md has them. Nothing here
knows of Spark, and reading an archive never writes to it.
"""

"""Verbs that only look: they read the catalog with DuckDB and start no Java. One file a verb."""

"""Verbs that only read the catalog, with DuckDB and without a JVM. One file for each verb."""

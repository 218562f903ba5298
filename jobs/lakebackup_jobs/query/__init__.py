"""Queries: records as a relation, differences of records, the report, charts, servers."""

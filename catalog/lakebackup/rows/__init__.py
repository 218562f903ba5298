"""The rows of the catalog's tables, a file a kind of source; the DDL in `sql/` describes every column."""

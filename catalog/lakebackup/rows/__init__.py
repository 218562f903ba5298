"""The rows of the catalog's tables, one module per kind of source. The DDL in `sql/` describes columns."""

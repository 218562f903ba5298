"""Rows from outside the catalog: rebuilds, imports, exports."""

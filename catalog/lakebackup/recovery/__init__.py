"""Rows that come from elsewhere: rebuilds, imports, exchange."""

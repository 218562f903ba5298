"""How verbs print rows, SQL and errors."""

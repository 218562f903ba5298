"""Plans for logs."""

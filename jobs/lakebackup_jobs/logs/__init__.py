"""Log tasks: change feeds captured without an end, and restored to any moment."""

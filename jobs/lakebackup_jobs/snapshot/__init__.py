"""What the tasks of a snapshot's backup and restore do."""

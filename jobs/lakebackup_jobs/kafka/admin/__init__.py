"""What a cluster says of its topics, groups and history, and what a restore changes there (Admin API)."""

"""A cluster's topics, groups and positions, and what a restore changes there (Admin API)."""

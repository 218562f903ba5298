"""A cluster's topics, groups and offsets, and the changes that a restore makes to them (Admin API)."""

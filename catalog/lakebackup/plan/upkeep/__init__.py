"""Plans for prunes and imports."""

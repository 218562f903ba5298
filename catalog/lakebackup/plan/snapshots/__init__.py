"""Plans for snapshots."""

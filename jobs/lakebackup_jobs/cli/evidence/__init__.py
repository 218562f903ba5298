"""The evidence of drills, checks and backups, and the verbs of `evidence`."""

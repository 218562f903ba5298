"""Deletion of files that no restore needs: the lock against restores, and the steps after a tombstone."""

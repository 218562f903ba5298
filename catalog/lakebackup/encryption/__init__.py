"""Encrypted objects, the keys of backups, and the recipients who can read them."""

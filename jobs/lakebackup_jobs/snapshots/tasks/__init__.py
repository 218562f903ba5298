"""What tasks do with the files of a snapshot: list, hash, copy, write."""

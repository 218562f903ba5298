"""What tests share. Nothing here uses the project's own readers or writers of data."""

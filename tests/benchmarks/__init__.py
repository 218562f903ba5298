"""What backup and restore cost here, next to other tools on the same machine in the same run. Not tests."""

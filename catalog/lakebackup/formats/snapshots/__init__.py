"""Files of snapshots: how they are laid out in their source, and the manifest of a backup for other tools."""

"""Files of snapshots: their layout in the source, their paths in a target, and manifests for other tools."""

"""Files of snapshots: how they lie in their source, and what describes a backup of them to others."""

"""The catalog and its backups over time: prune, verify, rebuild, optimize, import, export, policies."""

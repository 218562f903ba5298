"""The shell: `lakebackup sql` without a statement."""

-- The ids of all backups, whatever their state.
SELECT b.backup_id FROM raw_backups AS b ORDER BY b.backup_id

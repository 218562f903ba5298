-- The ids of all backups.
SELECT backup_id FROM backups ORDER BY backup_id

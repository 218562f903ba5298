-- Backups whose id begins so.
SELECT backup_id FROM backups WHERE startswith(backup_id, :prefix) ORDER BY backup_id LIMIT 20

-- The sources that have a backup that this program can restore.
SELECT DISTINCT t.source
FROM restore_points AS t
LEFT SEMI JOIN own_backups AS b ON t.backup_id = b.backup_id
ORDER BY t.source

-- The sources that have a backup that this program can restore, and of which kind.
SELECT DISTINCT t.source, b.source_kind
FROM chain_points AS t
JOIN own_backups AS b ON t.backup_id = b.backup_id
ORDER BY t.source, b.source_kind

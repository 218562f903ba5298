-- The backups from the future, of a source or of all.
SELECT f.source, f.backup_id, UNIX_MILLIS(f.end_time) AS end_ms
FROM future_backups AS f
WHERE CAST(:source AS STRING) IS NULL OR f.source = :source
ORDER BY f.source, f.number

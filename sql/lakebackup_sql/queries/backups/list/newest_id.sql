-- The backup that `latest` means: of a source, or of all, the one that ended last of those that can be restored.
SELECT b.backup_id
FROM backups AS b
LEFT JOIN pruned_backups AS p ON b.backup_id = p.backup_id
WHERE b.state = 'complete' AND b.intact AND p.backup_id IS NULL
  AND (CAST(:source AS STRING) IS NULL OR b.source = :source)
ORDER BY b.finished_time DESC NULLS LAST, b.source, b.number DESC
LIMIT 1

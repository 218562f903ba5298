-- 7c5f34eb8e05c6ef backups pruned_backups
SELECT
  b.backup_id
FROM backups AS b
LEFT JOIN pruned_backups AS p
  ON b.backup_id = p.backup_id
WHERE
  b.state = 'complete'
  AND b.intact
  AND p.backup_id IS NULL
  AND (
    TRY_CAST($source AS TEXT) IS NULL OR b.source = $source
  )
ORDER BY
  b.finished_time DESC,
  b.source NULLS FIRST,
  b.number DESC
LIMIT 1

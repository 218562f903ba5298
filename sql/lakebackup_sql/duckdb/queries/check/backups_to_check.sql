-- 8be317ad0b19ffd9 own_backups
SELECT
  b.destination,
  b.source,
  b.backup_id,
  b.source_kind,
  b.end_ts,
  b.digest
FROM own_backups AS b
WHERE
  b.state IN ('complete', 'out_of_sync')
  AND (
    $backup_ids = ''
    OR ARRAY_CONTAINS(STR_SPLIT_REGEX($backup_ids, ','), b.backup_id)
  )

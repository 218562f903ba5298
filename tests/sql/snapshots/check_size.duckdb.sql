SELECT
  COUNT(*) AS files,
  COALESCE(TRY_CAST(SUM(f.bytes) AS BIGINT), 0) AS bytes,
  COALESCE(TRY_CAST(SUM(f.entries) AS BIGINT), 0) AS entries
FROM files AS f
JOIN backups AS b
  ON f.backup_id = b.backup_id
WHERE
  b.source_kind IN ('kafka', 'couchbase')
  AND (
    $backup_ids = ''
    OR ARRAY_CONTAINS(STR_SPLIT_REGEX($backup_ids, ','), f.backup_id)
  )

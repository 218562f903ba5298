SELECT
  COUNT(*) AS files,
  COALESCE(TRY_CAST(SUM(f.bytes) AS BIGINT), 0) AS bytes,
  COALESCE(TRY_CAST(SUM(f.entries) AS BIGINT), 0) AS entries
FROM files AS f
WHERE
  $backup_ids = ''
  OR ARRAY_CONTAINS(STR_SPLIT_REGEX($backup_ids, ','), f.backup_id)

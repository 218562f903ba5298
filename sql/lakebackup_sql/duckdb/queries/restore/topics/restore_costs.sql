-- 48ef5a2d0696b599 backups chain_points files
SELECT
  b.backup_id,
  COUNT(*) AS files,
  CAST(SUM(f.bytes) AS BIGINT) AS bytes,
  CAST(SUM(f.entries) AS BIGINT) AS entries
FROM files AS f
JOIN chain_points AS t
  ON t.source = f.source
  AND t.scope = f.scope
  AND t.epoch = f.epoch
  AND t.generation = f.generation
JOIN backups AS b
  ON f.backup_id = b.backup_id
WHERE
  t.backup_id = $backup_id
  AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), t.scope)
  AND b.state = 'complete'
  AND b.place <= t.place
  AND f.role = 'data'
  AND (
    TRY_CAST($from_ts AS BIGINT) IS NULL OR f.max_ts > TRY_CAST($from_ts AS BIGINT)
  )
  AND (
    TRY_CAST($to_ts AS BIGINT) IS NULL OR f.min_ts <= TRY_CAST($to_ts AS BIGINT)
  )
GROUP BY
  b.backup_id
ORDER BY
  b.backup_id NULLS FIRST

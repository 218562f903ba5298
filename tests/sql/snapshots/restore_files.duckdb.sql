SELECT
  f.destination,
  f.path
FROM files AS f
JOIN backups AS b
  ON f.backup_id = b.backup_id
JOIN restore_points AS t
  ON f.source = t.source
  AND f.scope = t.scope
  AND f.epoch = t.epoch
  AND f.generation = t.generation
  AND b.base = t.base
  AND b.link <= t.link
  AND t.link < b.unlinked
WHERE
  f.source = $source
  AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), f.scope)
  AND t.source = $source
  AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), t.scope)
  AND b.state = 'complete'
  AND f.role = 'data'
  AND (
    (
      TRY_CAST($to_ts AS BIGINT) IS NULL AND t.newest
    )
    OR (
      t.covers_from < TRY_CAST($to_ts AS BIGINT)
      AND TRY_CAST($to_ts AS BIGINT) <= t.covers_to
    )
  )
  AND (
    TRY_CAST($from_ts AS BIGINT) IS NULL OR f.max_ts > TRY_CAST($from_ts AS BIGINT)
  )
  AND (
    TRY_CAST($to_ts AS BIGINT) IS NULL OR f.min_ts <= TRY_CAST($to_ts AS BIGINT)
  )

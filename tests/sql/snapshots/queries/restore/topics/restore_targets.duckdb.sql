SELECT
  t.scope,
  t.epoch,
  t.backup_id,
  t.base,
  t.number,
  t.covers_to AS end_ts,
  t.regions,
  t.replication,
  t.settings
FROM restore_points AS t
WHERE
  t.source = $source
  AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), t.scope)
  AND (
    (
      TRY_CAST($to_ts AS BIGINT) IS NULL AND t.newest
    )
    OR (
      t.covers_from < TRY_CAST($to_ts AS BIGINT)
      AND TRY_CAST($to_ts AS BIGINT) <= t.covers_to
    )
  )
ORDER BY
  t.scope NULLS FIRST

-- 68260aeddf59c277 chain_points
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
FROM chain_points AS t
WHERE
  t.source = $source
  AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), t.scope)
  AND CASE
    WHEN TRY_CAST($to_ts AS BIGINT) IS NULL
    THEN t.newest
    ELSE $to_ts > t.covers_from AND $to_ts <= t.covers_to
  END
ORDER BY
  t.scope NULLS FIRST

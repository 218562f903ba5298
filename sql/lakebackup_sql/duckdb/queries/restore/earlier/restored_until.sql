-- 0b1c09e3dd16f2e4 translations
SELECT
  t.scope,
  t.epoch,
  t.region,
  MAX(t.to_position) AS position,
  MAX(t.to_ts) AS to_ts
FROM translations AS t
WHERE
  t.source = $source
  AND t.cluster = $cluster
  AND ARRAY_CONTAINS(STR_SPLIT_REGEX($targets, ','), t.scope || '=' || t.target_epoch)
  AND (
    TRY_CAST($restore_id AS TEXT) IS NULL
    OR t.restore_id <> TRY_CAST($restore_id AS TEXT)
  )
GROUP BY
  t.scope,
  t.epoch,
  t.region
ORDER BY
  t.scope NULLS FIRST,
  t.epoch NULLS FIRST,
  TRY_CAST(t.region AS BIGINT) NULLS FIRST

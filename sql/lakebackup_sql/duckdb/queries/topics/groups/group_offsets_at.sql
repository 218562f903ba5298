-- 5277e2996e1ff935 group_offsets
SELECT
  group_id,
  scope,
  epoch,
  region,
  position,
  metadata,
  leader_epoch,
  ts,
  seen,
  backup_id
FROM (
  SELECT
    o.*,
    ROW_NUMBER() OVER (
      PARTITION BY o.group_id, o.scope, o.region
      ORDER BY o.ts DESC, o.seen DESC, o.log_position DESC
    ) AS newest
  FROM group_offsets AS o
  WHERE
    o.source = $source
    AND (
      TRY_CAST($ts AS BIGINT) IS NULL OR o.ts <= TRY_CAST($ts AS BIGINT)
    )
    AND (
      NOT o.position IS NULL OR NOT $ignore_erased
    )
) AS numbered
WHERE
  newest = 1 AND NOT position IS NULL
ORDER BY
  group_id NULLS FIRST,
  scope NULLS FIRST,
  TRY_CAST(region AS BIGINT) NULLS FIRST

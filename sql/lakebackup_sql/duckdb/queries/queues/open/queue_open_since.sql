-- a344f32cb3bd5503 raw_positions raw_queue_points
SELECT
  p.scope,
  p.epoch,
  p.region,
  MAX(p.end_position) AS end_position
FROM raw_positions AS p
JOIN raw_queue_points AS q
  ON p.backup_id = q.backup_id
WHERE
  p.source = $source
  AND q.source = $source
  AND q.last_tid < TRY_CAST($tid AS BIGINT)
GROUP BY
  p.scope,
  p.epoch,
  p.region
ORDER BY
  p.scope NULLS FIRST,
  p.epoch NULLS FIRST,
  TRY_CAST(p.region AS BIGINT) NULLS FIRST

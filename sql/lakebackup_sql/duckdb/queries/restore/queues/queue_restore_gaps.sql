-- bac961e02624e48f backups gaps
SELECT DISTINCT
  g.scope,
  g.region,
  g.reason,
  g.from_position,
  g.to_position,
  g.from_ts,
  g.to_ts
FROM gaps AS g
JOIN backups AS b
  ON g.backup_id = b.backup_id
WHERE
  g.source = $source
  AND b.source_kind = 'queues'
  AND g.from_ts < TRY_CAST($to_ts AS BIGINT)
  AND TRY_CAST($to_ts AS BIGINT) < g.to_ts
ORDER BY
  g.scope NULLS FIRST,
  g.region NULLS FIRST,
  g.from_position NULLS FIRST

-- 08e32a99d1a5238d raw_backups raw_groups
SELECT
  g.backup_id,
  g.source,
  g.group_id,
  g.protocol,
  g.state,
  NULLIF(g.scope, '') AS scope,
  g.epoch,
  NULLIF(g.region, '') AS region,
  CASE WHEN g.scope <> '' THEN g.position END AS position,
  g.leader_epoch,
  g.metadata,
  g.ts,
  TIMESTAMP_MILLIS(g.ts) AS time
FROM raw_groups AS g
JOIN raw_backups AS b
  ON b.backup_id = g.backup_id
WHERE
  b.state IN ('complete', 'out_of_sync')

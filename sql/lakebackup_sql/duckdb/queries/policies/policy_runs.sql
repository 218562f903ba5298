-- 46b3b423bf47d178 clock due_runs newest_runs policies raw_backups
SELECT
  n.source,
  n.run,
  n.schedule,
  n.time_zone,
  n.every_ms,
  n.backup_id,
  n.last_ts,
  d.due_ts,
  (
    SELECT
      now_ms
    FROM clock
  ) - n.ended_ms AS lag_ms,
  p.incremental_kind,
  p.level,
  p.patterns,
  p.command,
  k.source_kind
FROM newest_runs AS n
JOIN due_runs AS d
  ON n.source = d.source AND n.run = d.run
JOIN policies AS p
  ON n.source = p.source
LEFT JOIN (
  SELECT
    source,
    MAX(source_kind) AS source_kind
  FROM raw_backups
  GROUP BY
    source
) AS k
  ON n.source = k.source
WHERE
  TRY_CAST($source AS TEXT) IS NULL OR n.source = $source
ORDER BY
  n.source NULLS FIRST,
  n.run NULLS FIRST

-- a219f714076d2728 missed_runs policies raw_backups
SELECT
  m.source,
  m.run,
  m.schedule,
  m.backup_id,
  m.last_ts,
  m.missed,
  m.lag_ms,
  p.incremental_kind,
  p.level,
  p.patterns,
  p.time_zone,
  p.command,
  k.source_kind
FROM missed_runs AS m
JOIN policies AS p
  ON m.source = p.source
LEFT JOIN (
  SELECT
    source,
    MAX(source_kind) AS source_kind
  FROM raw_backups
  GROUP BY
    source
) AS k
  ON m.source = k.source
WHERE
  TRY_CAST($source AS TEXT) IS NULL OR m.source = $source
ORDER BY
  m.source NULLS FIRST,
  m.run NULLS FIRST

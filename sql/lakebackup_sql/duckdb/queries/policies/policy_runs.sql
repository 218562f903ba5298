-- 5a06dd29b49f1c84 missed_runs policies
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
  p.patterns
FROM missed_runs AS m
JOIN policies AS p
  ON m.source = p.source
WHERE
  TRY_CAST($source AS TEXT) IS NULL OR m.source = $source
ORDER BY
  m.source NULLS FIRST,
  m.run NULLS FIRST

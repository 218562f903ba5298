-- 80be7773d52d8bed policies
SELECT
  p.source,
  p.full_schedule,
  p.incremental_schedule,
  p.incremental_kind,
  p.level,
  p.window_days,
  p.redundancy,
  p.min_redundancy,
  p.keep,
  p.time_zone,
  p.drill_schedule,
  p.patterns,
  p.command,
  p.note,
  p.actor,
  p.time
FROM policies AS p
WHERE
  TRY_CAST($source AS TEXT) IS NULL OR p.source = $source
ORDER BY
  p.source NULLS FIRST

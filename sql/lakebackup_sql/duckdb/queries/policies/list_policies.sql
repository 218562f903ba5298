-- 0e5768a2155cca58 policies
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
  p.backup,
  p.note,
  p.actor,
  p.time
FROM policies AS p
WHERE
  TRY_CAST($source AS TEXT) IS NULL OR p.source = $source
ORDER BY
  p.source NULLS FIRST

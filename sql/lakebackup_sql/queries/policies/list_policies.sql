-- The policies in force, of a source or of all.
SELECT
  p.source, p.full_schedule, p.incremental_schedule, p.incremental_kind, p.level, p.window_days, p.redundancy,
  p.min_redundancy, p.keep, p.time_zone, p.drill_schedule, p.patterns, p.command, p.note, p.actor, p.time
FROM policies AS p
WHERE CAST(:source AS STRING) IS NULL OR p.source = :source
ORDER BY p.source

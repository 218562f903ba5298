-- The restore drills that policies schedule, of sources of which something can be restored: when the last one began, else
-- when the policy was set, in ms since 1970 UTC.
SELECT
  p.source, p.drill_schedule AS schedule, p.time_zone, p.drill_every_ms AS every_ms,
  COALESCE(d.at, p.at) DIV 1000 AS last_ts
FROM policies AS p
LEFT JOIN (SELECT source, MAX(at) AS at FROM raw_drills GROUP BY source) AS d ON p.source = d.source
WHERE p.drill_schedule IS NOT NULL
  AND p.source IN (SELECT source FROM backups WHERE state = 'complete' AND intact)
  AND (CAST(:source AS STRING) IS NULL OR p.source = :source)
ORDER BY p.source

-- By which schedule a calendar counts the runs of each source: that of its incrementals, or else of its fulls.
-- since_ts: when the source first had a policy, ms since 1970 UTC
SELECT
  p.source, COALESCE(p.incremental_schedule, p.full_schedule) AS schedule, p.time_zone, f.since_ts
FROM policies AS p
JOIN (SELECT source, MIN(at) DIV 1000 AS since_ts FROM raw_policies GROUP BY source) AS f ON p.source = f.source
WHERE COALESCE(p.incremental_schedule, p.full_schedule) IS NOT NULL
ORDER BY p.source

-- By which schedule a calendar counts the runs of each source: that of its incrementals, or else of its fulls.
-- since_ts: since when that has been the schedule, in this time zone and without a break, ms since 1970 UTC
SELECT s.source, s.schedule, s.time_zone, MIN(s.at) DIV 1000 AS since_ts
FROM (
  SELECT
    p.source, COALESCE(p.incremental_schedule, p.full_schedule) AS schedule, p.time_zone, r.at,
    MAX(
      CASE
        WHEN r.removed
          OR COALESCE(r.incremental_schedule, r.full_schedule, '') <> COALESCE(p.incremental_schedule, p.full_schedule)
          OR COALESCE(r.time_zone, 'UTC') <> COALESCE(p.time_zone, 'UTC')
          THEN r.at
      END
    ) OVER (PARTITION BY r.source) AS other_at
  FROM policies AS p
  JOIN raw_policies AS r ON p.source = r.source
  WHERE COALESCE(p.incremental_schedule, p.full_schedule) IS NOT NULL
) AS s
WHERE COALESCE(s.at > s.other_at, TRUE)
GROUP BY s.source, s.schedule, s.time_zone
ORDER BY s.source

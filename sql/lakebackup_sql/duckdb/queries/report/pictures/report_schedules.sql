-- f36bb83dee212204 policies raw_policies
SELECT
  s.source,
  s.schedule,
  s.time_zone,
  MIN(s."at") // 1000 AS since_ts
FROM (
  SELECT
    p.source,
    COALESCE(p.incremental_schedule, p.full_schedule) AS schedule,
    p.time_zone,
    r."at",
    MAX(
      CASE
        WHEN r.removed
        OR COALESCE(r.incremental_schedule, r.full_schedule, '') <> COALESCE(p.incremental_schedule, p.full_schedule)
        OR COALESCE(r.time_zone, 'UTC') <> COALESCE(p.time_zone, 'UTC')
        THEN r."at"
      END
    ) OVER (PARTITION BY r.source) AS other_at
  FROM policies AS p
  JOIN raw_policies AS r
    ON p.source = r.source
  WHERE
    NOT COALESCE(p.incremental_schedule, p.full_schedule) IS NULL
) AS s
WHERE
  COALESCE(s."at" > s.other_at, TRUE)
GROUP BY
  s.source,
  s.schedule,
  s.time_zone
ORDER BY
  s.source NULLS FIRST

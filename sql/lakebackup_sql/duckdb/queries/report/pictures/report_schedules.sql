-- e5fc960dcc21f561 policies raw_policies
SELECT
  p.source,
  COALESCE(p.incremental_schedule, p.full_schedule) AS schedule,
  p.time_zone,
  f.since_ts
FROM policies AS p
JOIN (
  SELECT
    source,
    MIN("at") // 1000 AS since_ts
  FROM raw_policies
  GROUP BY
    source
) AS f
  ON p.source = f.source
WHERE
  NOT COALESCE(p.incremental_schedule, p.full_schedule) IS NULL
ORDER BY
  p.source NULLS FIRST

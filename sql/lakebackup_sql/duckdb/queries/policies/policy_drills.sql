-- 0e440f31c92ae31d backups policies raw_drills
SELECT
  p.source,
  p.drill_schedule AS schedule,
  p.time_zone,
  p.drill_every_ms AS every_ms,
  COALESCE(d."at", p."at") // 1000 AS last_ts
FROM policies AS p
LEFT JOIN (
  SELECT
    source,
    MAX("at") AS "at"
  FROM raw_drills
  GROUP BY
    source
) AS d
  ON p.source = d.source
WHERE
  NOT p.drill_schedule IS NULL
  AND p.source IN (
    SELECT
      source
    FROM backups
    WHERE
      state = 'complete' AND intact
  )
  AND (
    TRY_CAST($source AS TEXT) IS NULL OR p.source = $source
  )
ORDER BY
  p.source NULLS FIRST

-- 3afd644f29dbf602 backups future_backups horizon policies raw_drills raw_scopes
SELECT
  w.source,
  w.run,
  w.schedule,
  w.time_zone,
  LEAST(w.every_ms, 3153600000000) AS every_ms,
  b.backup_id,
  COALESCE(b.began_ms, TRY_CAST(FLOOR(w."at" / NULLIF(1000, 0)) AS BIGINT)) AS last_ts,
  b.ended_ms
FROM (
  SELECT
    source,
    'full' AS run,
    full_schedule AS schedule,
    time_zone,
    full_every_ms AS every_ms,
    "at"
  FROM policies
  WHERE
    NOT full_schedule IS NULL
  UNION ALL
  SELECT
    source,
    'incremental' AS run,
    incremental_schedule AS schedule,
    time_zone,
    incremental_every_ms AS every_ms,
    "at"
  FROM policies
  WHERE
    NOT incremental_schedule IS NULL
  UNION ALL
  SELECT
    p.source,
    'drill' AS run,
    p.drill_schedule AS schedule,
    p.time_zone,
    p.drill_every_ms AS every_ms,
    COALESCE(d."at", p."at") AS "at"
  FROM policies AS p
  LEFT JOIN (
    SELECT
      source,
      MAX("at") AS "at"
    FROM raw_drills
    WHERE
      "at" <= (
        SELECT
          horizon_ms
        FROM horizon
      ) * 1000
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
) AS w
LEFT JOIN (
  SELECT
    t.source,
    r.run,
    ARG_MAX(t.backup_id, t.place) AS backup_id,
    MAX(
      CASE
        WHEN t.ts_domain = 'ms'
        THEN t.end_ts
        ELSE TRY_CAST(FLOOR(t.started_at / NULLIF(1000, 0)) AS BIGINT)
      END
    ) AS began_ms,
    MAX(
      CASE
        WHEN t.ts_domain = 'ms'
        THEN COALESCE(h.complete_ts, t.end_ts)
        ELSE TRY_CAST(FLOOR(t.finished_at / NULLIF(1000, 0)) AS BIGINT)
      END
    ) AS ended_ms
  FROM backups AS t
  JOIN (
    SELECT
      'full' AS run
    UNION ALL
    SELECT
      'incremental' AS run
  ) AS r
    ON r.run = 'incremental' OR t.kind = 'full'
  LEFT JOIN (
    SELECT
      backup_id,
      MIN(complete_ts) AS complete_ts
    FROM raw_scopes
    WHERE
      NOT complete_ts IS NULL
    GROUP BY
      backup_id
  ) AS h
    ON t.backup_id = h.backup_id
  ANTI JOIN future_backups AS u
    ON t.backup_id = u.backup_id
  WHERE
    t.state = 'complete' AND t.intact AND t.number = t.place
  GROUP BY
    t.source,
    r.run
) AS b
  ON w.source = b.source AND w.run = b.run

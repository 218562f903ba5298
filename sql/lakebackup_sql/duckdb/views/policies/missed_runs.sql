-- 52221922a9e9eec4 backups clock policies
SELECT
  s.source,
  s.run,
  s.schedule,
  s.every_ms,
  s.backup_id,
  s.last_ts,
  TIMESTAMP_MILLIS(s.last_ts) AS last_time,
  CASE
    WHEN s.now_ms > s.last_ts
    THEN TRY_CAST(FLOOR((
      s.now_ms - s.last_ts
    ) / NULLIF(s.every_ms, 0)) AS BIGINT)
    ELSE 0
  END AS missed,
  CASE
    WHEN s.now_ms - s.last_ts >= s.every_ms
    THEN s.now_ms - s.last_ts - s.every_ms
  END AS late_ms,
  s.now_ms - s.ended_ms AS lag_ms
FROM (
  SELECT
    w.source,
    w.run,
    w.schedule,
    w.every_ms,
    b.backup_id,
    b.ended_ms,
    (
      SELECT
        now_ms
      FROM clock
    ) AS now_ms,
    COALESCE(b.began_ms, TRY_CAST(FLOOR(w."at" / NULLIF(1000, 0)) AS BIGINT)) AS last_ts
  FROM (
    SELECT
      source,
      'full' AS run,
      full_schedule AS schedule,
      LEAST(full_every_ms, 3153600000000) AS every_ms,
      "at"
    FROM policies
    WHERE
      NOT full_schedule IS NULL
    UNION ALL
    SELECT
      source,
      'incremental' AS run,
      incremental_schedule AS schedule,
      LEAST(incremental_every_ms, 3153600000000) AS every_ms,
      "at"
    FROM policies
    WHERE
      NOT incremental_schedule IS NULL
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
          THEN t.end_ts
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
    WHERE
      t.state = 'complete' AND t.intact AND t.number = t.place
    GROUP BY
      t.source,
      r.run
  ) AS b
    ON w.source = b.source AND w.run = b.run
) AS s

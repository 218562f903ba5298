-- One row per source and run that its policy schedules: which run of that kind is the newest. Runs from the future do
-- not count.
-- run: full, incremental or drill; a full counts as an incremental too; drills only where something can be restored
-- schedule: when the run is to start
-- every_ms: longest time between two runs by its schedule; at most 100 years, so that the next one has a date
-- backup_id: newest backup that can be restored, no merge (for full: the newest full); null: none
-- last_ts: when that backup read the source, or the newest drill began, else when the policy was set, ms since 1970 UTC
-- ended_ms: when that backup ended; if open transactions hid records from it: the last instant before these
SELECT
  w.source, w.run, w.schedule, w.time_zone, LEAST(w.every_ms, 3153600000000) AS every_ms, b.backup_id,
  COALESCE(b.began_ms, CAST(FLOOR(w.at / 1000) AS BIGINT)) AS last_ts,
  b.ended_ms
FROM (
  SELECT source, 'full' AS run, full_schedule AS schedule, time_zone, full_every_ms AS every_ms, at
  FROM policies
  WHERE full_schedule IS NOT NULL
  UNION ALL
  SELECT
    source, 'incremental' AS run, incremental_schedule AS schedule, time_zone, incremental_every_ms AS every_ms, at
  FROM policies
  WHERE incremental_schedule IS NOT NULL
  UNION ALL
  SELECT
    p.source, 'drill' AS run, p.drill_schedule AS schedule, p.time_zone, p.drill_every_ms AS every_ms,
    COALESCE(d.at, p.at) AS at
  FROM policies AS p
  LEFT JOIN (
    SELECT source, MAX(at) AS at
    FROM raw_drills
    WHERE at <= (SELECT horizon_ms FROM horizon) * 1000
    GROUP BY source
  ) AS d ON p.source = d.source
  WHERE p.drill_schedule IS NOT NULL
    AND p.source IN (SELECT source FROM backups WHERE state = 'complete' AND intact)
) AS w
LEFT JOIN (
  SELECT
    t.source, r.run,
    MAX_BY(t.backup_id, t.place) AS backup_id,
    -- When the source was read. A compaction reads no source, and ends at the same instant as its original.
    MAX(CASE WHEN t.ts_domain = 'ms' THEN t.end_ts ELSE CAST(FLOOR(t.started_at / 1000) AS BIGINT) END) AS began_ms,
    MAX(
      CASE WHEN t.ts_domain = 'ms' THEN COALESCE(h.complete_ts, t.end_ts) ELSE CAST(FLOOR(t.finished_at / 1000) AS BIGINT) END
    ) AS ended_ms
  FROM backups AS t
  JOIN (SELECT 'full' AS run UNION ALL SELECT 'incremental' AS run) AS r
    ON r.run = 'incremental' OR t.kind = 'full'
  LEFT JOIN (
    SELECT backup_id, MIN(complete_ts) AS complete_ts
    FROM raw_scopes
    WHERE complete_ts IS NOT NULL
    GROUP BY backup_id
  ) AS h ON t.backup_id = h.backup_id
  LEFT ANTI JOIN future_backups AS u ON t.backup_id = u.backup_id
  WHERE t.state = 'complete' AND t.intact AND t.number = t.place
  GROUP BY t.source, r.run
) AS b ON w.source = b.source AND w.run = b.run

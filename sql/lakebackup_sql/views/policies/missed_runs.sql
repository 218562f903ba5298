-- What each schedule of a policy promises, and whether it is kept: runs that should have been since the newest backup
-- that can be restored, no merge (for full: the newest full). lag_ms is what would be lost now; more than every_ms is
-- more than was promised.
-- run: full or incremental; a full counts as an incremental too
-- schedule: when it is to run
-- every_ms: longest time from one run to the next by that schedule
-- backup_id: the newest backup; null: there is none
-- last_ts: when that read the source; without one, when the policy was set: ms since 1970 UTC
-- last_time: last_ts, in UTC
-- missed: how many runs should have been since then
-- late_ms: how long ago the first of them should have been; null: none
-- lag_ms: from the end of that backup to the present; null: there is none
SELECT
  s.source, s.run, s.schedule, s.every_ms, s.backup_id, s.last_ts,
  timestamp_millis(s.last_ts) AS last_time,
  CASE WHEN s.now_ms > s.last_ts THEN CAST(FLOOR((s.now_ms - s.last_ts) / s.every_ms) AS BIGINT) ELSE 0 END AS missed,
  CASE WHEN s.now_ms - s.last_ts >= s.every_ms THEN s.now_ms - s.last_ts - s.every_ms END AS late_ms,
  s.now_ms - s.ended_ms AS lag_ms
FROM (
  SELECT
    w.source, w.run, w.schedule, w.every_ms, b.backup_id, b.ended_ms, (SELECT now_ms FROM clock) AS now_ms,
    COALESCE(b.began_ms, CAST(FLOOR(w.at / 1000) AS BIGINT)) AS last_ts
  FROM (
    -- A hundred years at most: an instant later than that could have no calendar.
    SELECT source, 'full' AS run, full_schedule AS schedule, LEAST(full_every_ms, 3153600000000) AS every_ms, at
    FROM policies
    WHERE full_schedule IS NOT NULL
    UNION ALL
    SELECT
      source, 'incremental' AS run, incremental_schedule AS schedule,
      LEAST(incremental_every_ms, 3153600000000) AS every_ms, at
    FROM policies
    WHERE incremental_schedule IS NOT NULL
  ) AS w
  LEFT JOIN (
    SELECT
      t.source, r.run,
      MAX_BY(t.backup_id, t.place) AS backup_id,
      -- When the source was read: a compaction reads nothing and ends where what it is made from ends.
      MAX(CASE WHEN t.ts_domain = 'ms' THEN t.end_ts ELSE CAST(FLOOR(t.started_at / 1000) AS BIGINT) END) AS began_ms,
      MAX(CASE WHEN t.ts_domain = 'ms' THEN t.end_ts ELSE CAST(FLOOR(t.finished_at / 1000) AS BIGINT) END) AS ended_ms
    FROM backups AS t
    JOIN (SELECT 'full' AS run UNION ALL SELECT 'incremental' AS run) AS r
      ON r.run = 'incremental' OR t.kind = 'full'
    WHERE t.state = 'complete' AND t.intact AND t.number = t.place
    GROUP BY t.source, r.run
  ) AS b ON w.source = b.source AND w.run = b.run
) AS s

-- One row per source and schedule of its policy: how many runs were missed, and how much would be lost now. Runs are
-- counted since the newest backup that can be restored, and for `full` since the newest full that can be restored.
-- Merges do not count as backups here. `lag_ms` is the span of time whose changes would be lost now. If it exceeds
-- `every_ms`, more would be lost than the schedule promises.
-- run: full or incremental; a full counts as an incremental too
-- schedule: when the run is to start
-- every_ms: longest time from one run to the next by that schedule
-- backup_id: the newest backup; null: none
-- last_ts: when that backup read the source, ms since 1970 UTC; without a backup: when the policy was set
-- last_time: last_ts, in UTC
-- due_ts: the first time of the schedule after last_ts, ms since 1970 UTC; without a backup: when the policy was set;
--   null: the schedule cannot be read
-- due_time: due_ts, in UTC
-- missed: least number of runs that should have started since last_ts
-- late_ms: how long ago the first of these runs was due; null: none was missed
-- lag_ms: time from the last instant up to which the backups hold all records to now; null: there is no such instant
SELECT
  s.source, s.run, s.schedule, s.every_ms, s.backup_id, s.last_ts, timestamp_millis(s.last_ts) AS last_time,
  s.due_ts, timestamp_millis(s.due_ts) AS due_time,
  CASE WHEN s.now_ms >= s.due_ts THEN 1 + CAST(FLOOR((s.now_ms - s.due_ts) / s.every_ms) AS BIGINT) ELSE 0 END AS missed,
  CASE WHEN s.now_ms >= s.due_ts THEN s.now_ms - s.due_ts END AS late_ms,
  s.now_ms - s.ended_ms AS lag_ms
FROM (
  SELECT n.*, d.due_ts, (SELECT now_ms FROM clock) AS now_ms
  FROM newest_runs AS n
  JOIN due_runs AS d ON n.source = d.source AND n.run = d.run
  WHERE n.run <> 'drill'
) AS s

-- What each schedule of a policy promises, and whether it is kept: runs that should have been since the newest backup
-- that can be restored, no merge (for full: the newest full). lag_ms is what would be lost now; more than every_ms is
-- more than was promised.
-- run: full or incremental; a full counts as an incremental too
-- schedule: when it is to run
-- every_ms: longest time from one run to the next by that schedule
-- backup_id: the newest backup; null: there is none
-- last_ts: when that read the source; without one, when the policy was set: ms since 1970 UTC
-- last_time: last_ts, in UTC
-- due_ts: the first time of the schedule after that; without a backup, when the policy was set: ms since 1970 UTC;
--   null: the schedule cannot be read
-- due_time: due_ts, in UTC
-- missed: how many runs should have been since then, at least
-- late_ms: how long ago the first of them should have been; null: none
-- lag_ms: from the last instant that the backups hold all records of to the present; null: there is none
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

-- When each scheduled run is due next, or was. The engine has the schedule's own next time in the place of these rows:
-- SQL cannot work out cron. On Spark, where the catalog is large, a run is due when the longest time between two is over.
-- due_ts: the first time of the schedule after the newest run; the policy's own, while nothing is backed up
SELECT
  source, run,
  CASE WHEN backup_id IS NULL AND run <> 'drill' THEN last_ts ELSE last_ts + every_ms END AS due_ts
FROM newest_runs

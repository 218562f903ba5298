-- One row per source and scheduled run: when the run is or was next due. SQL cannot evaluate cron expressions, so the
-- engine replaces these rows with the schedule's own next times. On Spark with a large catalog, these rows stay, and a
-- run is due when the longest time between two runs is over.
-- due_ts: the first time of the schedule after the newest run; without a backup: when the policy was set
SELECT
  source, run,
  CASE WHEN backup_id IS NULL AND run <> 'drill' THEN last_ts ELSE last_ts + every_ms END AS due_ts
FROM newest_runs

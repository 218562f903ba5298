-- 2b43633d41a8fe16 newest_runs
SELECT
  source,
  run,
  CASE
    WHEN backup_id IS NULL AND run <> 'drill'
    THEN last_ts
    ELSE last_ts + every_ms
  END AS due_ts
FROM newest_runs

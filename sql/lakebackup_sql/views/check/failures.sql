-- Runs that ended in an error, of the last 100 days at least: backups, imports, merges, compactions, prunes and
-- truncates. Not a run that was killed, one that another run kept from working, one whose flags are wrong, or one that
-- names servers, topics or paths that no backup of the source was taken from.
-- started_time: started_at, in UTC
-- time: at, in UTC
-- age_ms: from its end to the present
SELECT
  f.*,
  timestamp_micros(f.started_at) AS started_time,
  timestamp_micros(f.at) AS time,
  (SELECT now_ms FROM clock) - f.at DIV 1000 AS age_ms
FROM raw_failures AS f
WHERE f.exit_code <> 0

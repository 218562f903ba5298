-- One row per run that ended in an error: what failed, when, and with which message. The view has the backups, imports,
-- merges, compactions, prunes and truncates of at least the last 100 days. Left out are runs that were killed, runs
-- that another run prevented, runs with wrong flags, and runs that name servers, topics or paths from which no backup
-- of the source was taken.
-- started_time: started_at, in UTC
-- time: at, in UTC
-- age_ms: time from the end of the run to now, in ms
SELECT
  f.*,
  timestamp_micros(f.started_at) AS started_time,
  timestamp_micros(f.at) AS time,
  (SELECT now_ms FROM clock) - f.at DIV 1000 AS age_ms
FROM raw_failures AS f
WHERE f.exit_code <> 0

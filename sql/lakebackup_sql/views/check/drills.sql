-- One row per drill: which restore point was tried, and whether the result matched the backup. A drill restores a
-- restore point of a source into a scratch folder, compares it with what was backed up, and deletes it. A ts that is
-- too large to be a date in ms is one of a timestamp oracle.
-- time: at, in UTC
-- to_time: to_ts, in UTC
-- age_ms: time from the start of the drill to now, in ms
SELECT
  d.*,
  timestamp_micros(d.at) AS time,
  CASE
    WHEN d.to_ts >= 281474976710656 THEN timestamp_millis(d.to_ts DIV 262144)
    WHEN d.to_ts >= 0 THEN timestamp_millis(d.to_ts)
  END AS to_time,
  (SELECT now_ms FROM clock) - d.at DIV 1000 AS age_ms
FROM raw_drills AS d

-- Restores on trial: a restore point of a source restored into a scratch folder, compared with what was backed up, and
-- deleted again. A ts beyond any calendar in ms is one of a timestamp oracle.
-- time: at, in UTC
-- to_time: to_ts, in UTC
-- age_ms: from its beginning to the present
SELECT
  d.*,
  timestamp_micros(d.at) AS time,
  CASE
    WHEN d.to_ts >= 281474976710656 THEN timestamp_millis(d.to_ts DIV 262144)
    WHEN d.to_ts >= 0 THEN timestamp_millis(d.to_ts)
  END AS to_time,
  (SELECT now_ms FROM clock) - d.at DIV 1000 AS age_ms
FROM raw_drills AS d

-- One row per run of restored records: which target offsets correspond to which source offsets.
-- time: at, in UTC
-- to_time: to_ts, in UTC; null: no to_ts
SELECT t.*, timestamp_micros(t.at) AS time,
  CASE WHEN t.to_ts >= 0 THEN timestamp_millis(t.to_ts) END AS to_time
FROM raw_translations AS t

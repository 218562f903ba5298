-- dfe799958b05e749 clock raw_drills
SELECT
  d.*,
  TIMESTAMP_MICROS(d."at") AS time,
  CASE
    WHEN d.to_ts >= 281474976710656
    THEN TIMESTAMP_MILLIS(d.to_ts // 262144)
    WHEN d.to_ts >= 0
    THEN TIMESTAMP_MILLIS(d.to_ts)
  END AS to_time,
  (
    SELECT
      now_ms
    FROM clock
  ) - d."at" // 1000 AS age_ms
FROM raw_drills AS d

SELECT
  r.*,
  TIMESTAMP_MICROS(r."at") AS time
FROM raw_removals AS r

-- 516ea9aa5292547e raw_removals
SELECT
  r.*,
  TIMESTAMP_MICROS(r."at") AS time
FROM raw_removals AS r

-- 2278a2540722ba5e raw_checks
SELECT
  c.*,
  TIMESTAMP_MICROS(c."at") AS time
FROM raw_checks AS c

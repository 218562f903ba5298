-- 8d760c0b65a2d392 raw_checks
SELECT
  c.*,
  TIMESTAMP_MICROS(c."at") AS time
FROM raw_checks AS c

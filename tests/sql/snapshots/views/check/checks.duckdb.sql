SELECT
  c.*,
  TIMESTAMP_MICROS(c."at") AS time
FROM raw_checks AS c

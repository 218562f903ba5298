SELECT
  a.*,
  TIMESTAMP_MICROS(a."at") AS time
FROM raw_audit AS a

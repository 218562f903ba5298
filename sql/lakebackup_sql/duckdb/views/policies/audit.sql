-- a6212351192a1022 raw_audit
SELECT
  a.*,
  TIMESTAMP_MICROS(a."at") AS time
FROM raw_audit AS a

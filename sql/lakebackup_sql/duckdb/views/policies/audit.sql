-- 8df7ad04128482e5 raw_audit
SELECT
  a.*,
  TIMESTAMP_MICROS(a."at") AS time
FROM raw_audit AS a

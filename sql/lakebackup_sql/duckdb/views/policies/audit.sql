-- 98cada119846c1e0 raw_audit
SELECT
  a.*,
  TIMESTAMP_MICROS(a."at") AS time
FROM raw_audit AS a

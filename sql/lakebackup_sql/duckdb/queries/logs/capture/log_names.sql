-- 63c5fc679fc5a8ef log_tables
SELECT DISTINCT
  table_id,
  db,
  name
FROM log_tables
WHERE
  source = $source AND table_id >= 0
ORDER BY
  table_id NULLS FIRST,
  db NULLS FIRST,
  name NULLS FIRST

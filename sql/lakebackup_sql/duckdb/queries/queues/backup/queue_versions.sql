-- 3dd75df5a75cd21d raw_queue_schemas
SELECT
  version,
  from_tid
FROM raw_queue_schemas
WHERE
  backup_id = $backup_id
ORDER BY
  from_tid NULLS FIRST,
  version NULLS FIRST

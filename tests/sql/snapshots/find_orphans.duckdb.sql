SELECT
  o.destination,
  o.path,
  o.bytes
FROM raw_storage_objects AS o
LEFT JOIN raw_files AS f
  ON o.destination = f.destination AND o.path = f.path
LEFT JOIN raw_backups AS b
  ON f.backup_id = b.backup_id
WHERE
  o.check_id = $check_id AND o.modified_ms < $before_ms AND b.backup_id IS NULL

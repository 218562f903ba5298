-- d5bc8e2b4db04e8d emptied_backups raw_backups raw_files raw_removals storage_objects
SELECT
  o.check_id,
  o."at",
  o.destination,
  o.path,
  o.bytes,
  o.modified_ms,
  o.modified_time,
  COALESCE(r.prune_id, e.prune_id) AS prune_id,
  TRY_CAST(FLOOR(o."at" / NULLIF(1000, 0)) AS BIGINT) - o.modified_ms AS age_ms,
  TIMESTAMP_MICROS(o."at") AS time
FROM storage_objects AS o
LEFT JOIN raw_files AS f
  ON o.destination = f.destination AND o.path = f.path
LEFT JOIN raw_backups AS b
  ON f.backup_id = b.backup_id
LEFT JOIN raw_removals AS r
  ON o.destination = r.destination AND o.path = r.path
LEFT JOIN emptied_backups AS e
  ON CASE WHEN f.role <> 'meta' THEN f.backup_id END = e.backup_id
WHERE
  b.backup_id IS NULL OR NOT r.path IS NULL OR NOT e.backup_id IS NULL

SELECT
  o.destination,
  o.path,
  o.bytes
FROM raw_storage_objects AS o
LEFT JOIN raw_files AS f
  ON o.destination = f.destination AND o.path = f.path
LEFT JOIN raw_backups AS b
  ON f.backup_id = b.backup_id
LEFT JOIN raw_removals AS r
  ON o.destination = r.destination AND o.path = r.path
WHERE
  o.check_id = $check_id
  AND o.modified_ms < $before_ms
  AND (
    b.backup_id IS NULL
    OR (
      NOT r.path IS NULL
      AND NOT ARRAY_CONTAINS(STR_SPLIT_REGEX($unfinished, ','), r.prune_id)
    )
  )

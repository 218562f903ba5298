-- f42d0886701ce800 backups emptied_backups raw_files raw_removals
SELECT
  COUNT(*) AS files,
  MIN(f.path) AS path,
  MIN(COALESCE(r.prune_id, e.prune_id)) AS prune_id
FROM raw_files AS f
JOIN backups AS b
  ON f.backup_id = b.backup_id
LEFT JOIN raw_removals AS r
  ON f.destination = r.destination AND f.path = r.path
LEFT JOIN emptied_backups AS e
  ON f.backup_id = e.backup_id
WHERE
  f.source = $source
  AND b.base = $base
  AND b.link <= TRY_CAST($link AS BIGINT)
  AND TRY_CAST($link AS BIGINT) < b.unlinked
  AND (
    NOT r.path IS NULL OR NOT e.backup_id IS NULL
  )
  AND f.role <> 'meta'
  AND (
    f.role <> 'data' OR f.format LIKE 'kafka-avro-%'
  )

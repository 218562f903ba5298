-- cd3a5932fa102a41 backups raw_files raw_removals
SELECT
  COUNT(*) AS files,
  MIN(f.path) AS path,
  MIN(r.prune_id) AS prune_id
FROM raw_files AS f
JOIN raw_removals AS r
  ON f.destination = r.destination AND f.path = r.path
JOIN backups AS b
  ON f.backup_id = b.backup_id
WHERE
  f.source = $source
  AND b.base = $base
  AND b.link <= TRY_CAST($link AS BIGINT)
  AND TRY_CAST($link AS BIGINT) < b.unlinked
  AND (
    f.role <> 'data' OR f.format LIKE 'kafka-avro-%'
  )

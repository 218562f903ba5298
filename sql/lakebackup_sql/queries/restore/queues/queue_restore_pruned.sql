-- Files of the backups up to :link of the chain of :base that its last one needs, and that were pruned.
SELECT COUNT(*) AS files, MIN(f.path) AS path, MIN(COALESCE(r.prune_id, e.prune_id)) AS prune_id
FROM raw_files AS f
JOIN backups AS b ON f.backup_id = b.backup_id
LEFT JOIN raw_removals AS r ON f.destination = r.destination AND f.path = r.path
LEFT JOIN emptied_backups AS e ON f.backup_id = e.backup_id
WHERE f.source = :source
  AND b.base = :base
  AND b.link <= CAST(:link AS BIGINT)
  AND CAST(:link AS BIGINT) < b.unlinked
  AND (r.path IS NOT NULL OR e.backup_id IS NOT NULL)
  AND f.role <> 'meta'
  AND (f.role <> 'data' OR f.format LIKE 'kafka-avro-%')

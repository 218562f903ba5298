-- The data keys with which nothing is encrypted any more, after prune :prune_id deleted objects or the backups of the
-- relation leaving: those of deleted backups. A key stays while any stored file, or any file of a backup that is not
-- deleted, has it: later backups of a snapshot have files that an earlier key encrypts.
SELECT DISTINCT b.destination, k.source, k.backup_id, k.key_id
FROM raw_data_keys AS k
JOIN raw_backups AS b ON k.backup_id = b.backup_id
JOIN (
  SELECT backup_id FROM leaving
  UNION
  SELECT backup_id FROM raw_removals WHERE prune_id = :prune_id
) AS p ON k.backup_id = p.backup_id
LEFT ANTI JOIN (
  SELECT key_id FROM files WHERE key_id IS NOT NULL
  UNION
  SELECT f.key_id
  FROM raw_files AS f
  JOIN raw_backups AS c ON f.backup_id = c.backup_id
  WHERE f.key_id IS NOT NULL AND c.state <> 'deleted'
) AS u ON k.key_id = u.key_id
WHERE b.state = 'deleted'
ORDER BY b.destination, k.source, k.backup_id, k.key_id

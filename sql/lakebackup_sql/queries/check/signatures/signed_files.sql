-- The rows of files of the backups of :source that count, as their signed manifests list them.
SELECT f.*
FROM raw_files AS f
JOIN raw_backups AS b ON f.backup_id = b.backup_id
WHERE f.source = :source
  AND b.source = :source
  AND b.state IN ('complete', 'out_of_sync')

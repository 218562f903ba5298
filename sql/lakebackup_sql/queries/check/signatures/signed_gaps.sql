-- The rows of gaps of the backups of :source that count, as their signed manifests list them.
SELECT g.*
FROM raw_gaps AS g
JOIN raw_backups AS b ON g.backup_id = b.backup_id
WHERE g.source = :source
  AND b.source = :source
  AND b.state IN ('complete', 'out_of_sync')

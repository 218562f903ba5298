-- The rows of positions of the backups of :source that count, as their signed manifests list them.
SELECT p.*
FROM raw_positions AS p
JOIN raw_backups AS b ON p.backup_id = b.backup_id
WHERE p.source = :source
  AND b.source = :source
  AND b.state IN ('complete', 'out_of_sync')

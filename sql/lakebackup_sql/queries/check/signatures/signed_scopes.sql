-- The rows of scopes of the backups of :source that count, as their signed manifests list them.
SELECT s.*
FROM raw_scopes AS s
JOIN raw_backups AS b ON s.backup_id = b.backup_id
WHERE s.source = :source
  AND b.source = :source
  AND b.state IN ('complete', 'out_of_sync')

-- The rows of files that snapshots no longer have of the backups of :source that count, as objects beside them list them.
SELECT s.*, b.backup_id AS listed_by
FROM raw_snapshot_departures AS s
JOIN raw_backups AS b ON s.gone_by = b.backup_id
WHERE s.source = :source
  AND b.source = :source
  AND b.state IN ('complete', 'out_of_sync')

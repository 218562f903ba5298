-- The rows of states of an engine of the backups of :source that count, as objects beside them list them.
SELECT q.*, b.backup_id AS listed_by
FROM raw_queue_points AS q
JOIN raw_backups AS b ON q.backup_id = b.backup_id
WHERE q.source = :source
  AND b.source = :source
  AND b.state IN ('complete', 'out_of_sync')

-- The rows of tables of change feeds of the backups of :source that count, as objects beside them list them.
SELECT t.*, b.backup_id AS listed_by
FROM raw_log_tables AS t
JOIN raw_backups AS b ON t.backup_id = b.backup_id
WHERE t.source = :source
  AND b.source = :source
  AND b.state IN ('complete', 'out_of_sync')

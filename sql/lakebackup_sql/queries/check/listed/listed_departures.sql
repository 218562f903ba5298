-- The rows of log files that later ones replace of the backups of :source that count, as objects beside them list them.
SELECT d.*, b.backup_id AS listed_by
FROM raw_departures AS d
JOIN raw_backups AS b ON d.gone_in = b.number
WHERE d.source = :source
  AND b.source = :source
  AND b.state IN ('complete', 'out_of_sync')

-- What each table of the change feed :source is called since its last naming, and each database: its table_id is
-- negative, its name empty.
SELECT n.table_id, n.db, n.name, n.action, n.from_ts, n.covered AS covered_from
FROM (
  SELECT
    t.*,
    MIN(t.covered_from) OVER (PARTITION BY t.table_id) AS covered,
    ROW_NUMBER() OVER (PARTITION BY t.table_id ORDER BY t.from_ts DESC) AS nth
  FROM raw_log_tables AS t
  JOIN raw_backups AS b ON t.backup_id = b.backup_id
  WHERE t.source = :source
    AND b.state <> 'unconfirmed'
) AS n
WHERE n.nth = 1
ORDER BY n.table_id

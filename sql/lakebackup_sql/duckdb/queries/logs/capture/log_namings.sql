-- 254b24c687b879ae raw_backups raw_log_tables
SELECT
  n.table_id,
  n.db,
  n.name,
  n.action,
  n.from_ts,
  n.covered AS covered_from
FROM (
  SELECT
    t.*,
    MIN(t.covered_from) OVER (PARTITION BY t.table_id) AS covered,
    ROW_NUMBER() OVER (PARTITION BY t.table_id ORDER BY t.from_ts DESC) AS nth
  FROM raw_log_tables AS t
  JOIN raw_backups AS b
    ON t.backup_id = b.backup_id
  WHERE
    t.source = $source AND b.state <> 'unconfirmed'
) AS n
WHERE
  n.nth = 1
ORDER BY
  n.table_id NULLS FIRST

-- b5b17b90ed1040a4 raw_backups raw_log_tables
SELECT
  n.source,
  n.table_id,
  n.db,
  n.name,
  n.action,
  n.replaces,
  n.from_ts,
  n.to_ts,
  n.covered_from,
  n.backup_id,
  TIMESTAMP_MILLIS(n.from_ts // CASE n.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END) AS from_time,
  TIMESTAMP_MILLIS(n.to_ts // CASE n.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END) AS to_time
FROM (
  SELECT
    t.source,
    t.table_id,
    t.db,
    t.name,
    t.action,
    t.replaces,
    t.from_ts,
    t.backup_id,
    b.ts_domain,
    LEAD(t.from_ts) OVER (PARTITION BY t.source, t.table_id ORDER BY t.from_ts NULLS FIRST) AS to_ts,
    MIN(t.covered_from) OVER (PARTITION BY t.source, t.table_id) AS covered_from
  FROM raw_log_tables AS t
  JOIN raw_backups AS b
    ON t.backup_id = b.backup_id
  WHERE
    t.table_id >= 0 AND b.state <> 'unconfirmed'
) AS n

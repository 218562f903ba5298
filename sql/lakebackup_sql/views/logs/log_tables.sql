-- One row per name that a table of a change feed has had: for which commit ts the table had it. The name is valid from
-- `from_ts` up to, but not including, `to_ts`.
-- to_ts: commit ts from which the table has another name or none; null: it still has this one
-- from_time: from_ts, in UTC; null: its unit is neither ms nor tso
-- to_time: to_ts, in UTC; null: the table still has this name, or the unit is neither ms nor tso
SELECT
  n.source, n.table_id, n.db, n.name, n.action, n.replaces, n.from_ts, n.to_ts, n.covered_from, n.backup_id,
  timestamp_millis(n.from_ts DIV CASE n.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END) AS from_time,
  timestamp_millis(n.to_ts DIV CASE n.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END) AS to_time
FROM (
  SELECT
    t.source, t.table_id, t.db, t.name, t.action, t.replaces, t.from_ts, t.backup_id, b.ts_domain,
    LEAD(t.from_ts) OVER (PARTITION BY t.source, t.table_id ORDER BY t.from_ts) AS to_ts,
    MIN(t.covered_from) OVER (PARTITION BY t.source, t.table_id) AS covered_from
  FROM raw_log_tables AS t
  JOIN raw_backups AS b ON t.backup_id = b.backup_id
  -- The table lists databases too, under negative ids.
  WHERE t.table_id >= 0
    AND b.state <> 'unconfirmed'
) AS n

-- 12a7a6c2a7086387 queue_points queue_schemas
SELECT
  p.first_tid,
  p.last_tid,
  p.snapshot_id,
  p.restore_id,
  p.carried,
  p.open_transactions,
  p.superseded,
  v.version AS schema_version,
  v.from_tid AS schema_from_tid
FROM queue_points AS p
LEFT JOIN (
  SELECT
    s.backup_id,
    MAX(s.version) AS version,
    MAX(s.from_tid) AS from_tid
  FROM queue_schemas AS s
  WHERE
    s.backup_id = $backup_id AND s.to_tid IS NULL
  GROUP BY
    s.backup_id
) AS v
  ON p.backup_id = v.backup_id
WHERE
  p.backup_id = $backup_id

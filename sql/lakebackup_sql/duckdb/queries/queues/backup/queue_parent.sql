-- dccc07c62c25451e parents raw_queue_points
SELECT
  b.backup_id,
  b.base,
  b.number,
  b.level,
  b.chain_position,
  b.place,
  b.link,
  b.branch,
  b.end_ts,
  b.kind,
  p.last_tid,
  p.open_transactions,
  p.carried,
  p.snapshot_id,
  b.reason
FROM parents AS b
JOIN raw_queue_points AS p
  ON b.backup_id = p.backup_id
WHERE
  b.backup_id = $backup_id

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
  CASE
    WHEN b.state <> 'complete'
    THEN b.state
    WHEN NOT b.intact
    THEN 'chain'
    WHEN b.unlinked <= m.last_link
    THEN 'aside'
  END AS reason
FROM backups AS b
JOIN raw_queue_points AS p
  ON b.backup_id = p.backup_id
JOIN (
  SELECT
    source,
    base,
    MAX(link) AS last_link
  FROM backups
  GROUP BY
    source,
    base
) AS m
  ON b.source = m.source AND b.base = m.base
WHERE
  b.backup_id = $backup_id

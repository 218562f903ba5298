-- The backups of the queues of :source, and the state that each restores.
SELECT
  b.backup_id, b.number, b.kind, b.base, b.link, b.unlinked, b.state, b.chained AS intact, p.superseded, p.last_tid, p.snapshot_id,
  p.restore_id, COALESCE(b.start_ts, b.end_ts - 1) AS start_ts, b.end_ts
FROM queue_points AS p
JOIN backups AS b ON p.backup_id = b.backup_id
WHERE p.source = :source
  AND b.state <> 'deleted'
ORDER BY b.number

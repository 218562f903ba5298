-- 949751438f0371c8 backups queue_points raw_backups raw_queue_restores
SELECT
  b.backup_id,
  b.number,
  b.kind,
  b.base,
  b.link,
  b.unlinked,
  b.state,
  b.chained AS intact,
  p.superseded,
  p.last_tid,
  p.snapshot_id,
  p.restore_id,
  COALESCE(b.start_ts, b.end_ts - 1) AS start_ts,
  b.end_ts,
  r.continues_to
FROM queue_points AS p
JOIN backups AS b
  ON p.backup_id = b.backup_id
LEFT JOIN (
  SELECT DISTINCT
    q.restore_id,
    CASE WHEN q.whole OR a.kind = 'full' THEN a.number ELSE a.number - 1 END AS continues_to
  FROM raw_queue_restores AS q
  JOIN raw_backups AS a
    ON q.backup_id = a.backup_id
) AS r
  ON p.restore_id = r.restore_id
WHERE
  p.source = $source AND b.state <> 'deleted'
ORDER BY
  b.number NULLS FIRST

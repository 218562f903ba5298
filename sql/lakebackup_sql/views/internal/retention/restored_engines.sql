-- One row per source of queues that was restored and has not been backed up since. Its next backup depends on what was
-- restored.
-- backup_id: the differential that the engine was restored to
-- full_id: its full
SELECT r.source, r.backup_id, r.full_id
FROM (
  SELECT s.source, MAX(s.at) AS at, MAX_BY(s.backup_id, s.at) AS backup_id, MAX_BY(s.full_id, s.at) AS full_id
  FROM raw_queue_restores AS s
  GROUP BY s.source
) AS r
LEFT ANTI JOIN raw_backups AS n ON r.source = n.source AND r.at < n.started_at AND n.state IN ('complete', 'deleted')

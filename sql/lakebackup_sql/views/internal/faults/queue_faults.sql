-- One row per fault that affects backups of an engine's queues: which backups it affects. These are the backups of the
-- same base whose link is from `link` to `unlinked` - 1. A fault in messages affects the rest of the chain. A fault in
-- the engine's own files affects only that backup. A fault in the snapshot affects the complete chain.
-- backup_id: the backup that wrote the file: one of the queues or of the snapshot
-- snapshot_state: for a fault in the snapshot: the state of the snapshot's backup
-- from_ts: the fault affects the times after this instant; -1: all times
SELECT
  n.source, n.base, n.link, CASE WHEN f.role = 'data' THEN n.unlinked ELSE n.link + 1 END AS unlinked, f.backup_id,
  f.outcome, f.destination, f.path, f.detail, f.found_at, CAST(NULL AS STRING) AS snapshot_state,
  CASE WHEN f.role = 'data' THEN f.min_ts - 1 ELSE -1 END AS from_ts
FROM faulty_files AS f
JOIN backups AS n ON f.backup_id = n.backup_id
WHERE n.source_kind = 'queues'
  AND f.role IN ('data', 'config', 'schema')
UNION ALL
SELECT
  n.source, n.base, n.link, n.unlinked, s.backup_id, c.outcome, c.destination, c.path, c.detail, c.at AS found_at,
  s.state AS snapshot_state, -1 AS from_ts
FROM (
  SELECT DISTINCT p.backup_id AS full_id, m.backup_id, m.state, k.destination, k.path
  FROM raw_queue_points AS p
  JOIN raw_backups AS m ON p.snapshot_id = m.backup_id
  JOIN snapshot_files AS k
    ON m.source = k.source AND k.added_in <= m.number AND COALESCE(m.number < k.gone_in, TRUE) AND k.stored
) AS s
JOIN faults AS c ON s.destination = c.destination AND s.path = c.path
JOIN backups AS n ON s.full_id = n.backup_id

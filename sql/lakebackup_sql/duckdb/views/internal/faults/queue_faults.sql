-- ee332b02978269d9 backups faults faulty_files raw_backups raw_queue_points snapshot_files
SELECT
  n.source,
  n.base,
  n.link,
  CASE WHEN f.role = 'data' THEN n.unlinked ELSE n.link + 1 END AS unlinked,
  f.backup_id,
  f.outcome,
  f.destination,
  f.path,
  f.detail,
  f.found_at,
  TRY_CAST(NULL AS TEXT) AS snapshot_state,
  CASE WHEN f.role = 'data' THEN f.min_ts - 1 ELSE -1 END AS from_ts
FROM faulty_files AS f
JOIN backups AS n
  ON f.backup_id = n.backup_id
WHERE
  n.source_kind = 'queues' AND f.role IN ('data', 'config', 'schema')
UNION ALL
SELECT
  n.source,
  n.base,
  n.link,
  n.unlinked,
  s.backup_id,
  c.outcome,
  c.destination,
  c.path,
  c.detail,
  c."at" AS found_at,
  s.state AS snapshot_state,
  -1 AS from_ts
FROM (
  SELECT DISTINCT
    p.backup_id AS full_id,
    m.backup_id,
    m.state,
    k.destination,
    k.path
  FROM raw_queue_points AS p
  JOIN raw_backups AS m
    ON p.snapshot_id = m.backup_id
  JOIN snapshot_files AS k
    ON m.source = k.source
    AND k.added_in <= m.number
    AND COALESCE(m.number < k.gone_in, TRUE)
    AND k.stored
) AS s
JOIN faults AS c
  ON s.destination = c.destination AND s.path = c.path
JOIN backups AS n
  ON s.full_id = n.backup_id

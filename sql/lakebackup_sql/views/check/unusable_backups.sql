-- One row per unusable backup and reason: why the backup, or some of its topics, cannot be restored. Deleted backups
-- are left out.
-- reason: out_of_sync (its history was cut back), unconfirmed (its marker is missing), chain (an earlier backup of its
--   chain, or the snapshot that an engine's full depends on, cannot be used; or no restore path leads to this log of
--   another program), missing, changed or damaged (a file that it needs), pruned (a prune removed the generation of a
--   topic that it holds), trial (a trial restore failed)
-- fault_backup_id: the backup at fault: itself, the earliest of its chain, or that of the snapshot; null: it does not
--   exist
-- fault_state: state of the backup at fault
-- faults: number of files at fault
-- destination: the destination of the first file at fault
-- path: path of the first file at fault
-- detail: what verify reported; for pruned: the first of the topics
-- found_at: when verify reported it, microseconds since 1970 UTC
-- found_time: when verify reported it, in UTC
WITH without_file AS (
  SELECT backup_id, state AS reason, backup_id AS fault_backup_id, CAST(NULL AS STRING) AS detail
  FROM backups
  WHERE state IN ('out_of_sync', 'unconfirmed')
  UNION ALL
  SELECT b.backup_id, 'chain' AS reason, MIN_BY(e.backup_id, e.link) AS fault_backup_id, CAST(NULL AS STRING) AS detail
  FROM backups AS b
  LEFT JOIN (
    SELECT source, base, link, unlinked, backup_id FROM backups WHERE state <> 'complete'
  ) AS e ON b.source = e.source AND b.base = e.base AND e.link < b.link AND b.link < e.unlinked
  WHERE b.state = 'complete' AND NOT b.chained
  GROUP BY b.backup_id
  UNION ALL
  SELECT b.backup_id, 'chain' AS reason, p.snapshot_id AS fault_backup_id, CAST(NULL AS STRING) AS detail
  FROM raw_queue_points AS p
  LEFT JOIN raw_backups AS s ON p.snapshot_id = s.backup_id
  JOIN backups AS b ON p.backup_id = b.base AND p.source = b.source
  WHERE p.snapshot_id IS NOT NULL
    AND COALESCE(s.state, 'deleted') <> 'complete'
    AND b.state = 'complete'
    AND b.chained
  UNION ALL
  SELECT backup_id, 'chain' AS reason, CAST(NULL AS STRING) AS fault_backup_id, CAST(NULL AS STRING) AS detail
  FROM unreached_logs
  UNION ALL
  SELECT s.backup_id, 'pruned' AS reason, s.backup_id AS fault_backup_id, MIN(s.scope) AS detail
  FROM raw_scopes AS s
  JOIN scope_floors AS l
    ON s.source = l.source AND s.scope = l.scope AND s.epoch = l.epoch AND s.generation < l.generation
  GROUP BY s.backup_id
),
-- Each fault with each backup that needs the file, whichever topics it has. link orders the backups at fault.
faulty AS (
  -- A snapshot needs the objects that hold its files, whichever backup wrote them.
  SELECT
    b.backup_id, c.outcome, s.backup_id AS fault_backup_id, s.added_in AS link, c.destination, c.path, c.detail,
    c.at AS found_at
  FROM snapshot_files AS s
  JOIN faults AS c ON s.destination = c.destination AND s.path = c.path AND s.stored
  JOIN backups AS b ON s.source = b.source AND s.added_in <= b.number AND COALESCE(b.number < s.gone_in, TRUE)
  UNION ALL
  -- In a change feed, a fault affects only the flush that captured the file. coverage shows the affected times.
  SELECT f.backup_id, f.outcome, f.backup_id AS fault_backup_id, 0 AS link, f.destination, f.path, f.detail, f.found_at
  FROM faulty_files AS f
  LEFT ANTI JOIN departures AS d ON f.destination = d.destination AND f.path = d.path
  JOIN raw_backups AS b ON f.backup_id = b.backup_id
  WHERE b.source_kind = 'changes'
    AND f.format IN ('log-arrow-1', 'delta')
  UNION ALL
  SELECT b.backup_id, q.outcome, q.backup_id AS fault_backup_id, q.link, q.destination, q.path, q.detail, q.found_at
  FROM queue_faults AS q
  JOIN backups AS b ON q.source = b.source AND q.base = b.base AND q.link <= b.link AND b.link < q.unlinked
),
unusable AS (
  SELECT
    backup_id, reason, fault_backup_id, CAST(0 AS BIGINT) AS faults, CAST(NULL AS STRING) AS destination,
    CAST(NULL AS STRING) AS path, detail, CAST(NULL AS BIGINT) AS found_at
  FROM without_file
  UNION ALL
  SELECT w.backup_id, w.outcome AS reason, w.fault_backup_id, w.faults, w.destination, w.path, w.detail, w.found_at
  FROM (
    SELECT
      b.backup_id, f.outcome, f.backup_id AS fault_backup_id, f.destination, f.path, f.detail, f.found_at,
      CAST(SUM(f.faults) OVER (PARTITION BY b.backup_id, f.outcome) AS BIGINT) AS faults,
      ROW_NUMBER() OVER (PARTITION BY b.backup_id, f.outcome ORDER BY f.link, f.path) AS place
    FROM (
      SELECT
        n.source, n.base, n.link, n.unlinked, n.backup_id, d.scope, d.epoch, d.generation, d.outcome,
        COUNT(*) AS faults,
        MIN(d.destination) AS destination,
        MIN(d.path) AS path,
        NULLIF(MIN_BY(COALESCE(d.detail, ''), d.path), '') AS detail,
        MIN_BY(d.found_at, d.path) AS found_at
      FROM faulty_files AS d
      JOIN backups AS n ON d.backup_id = n.backup_id
      WHERE n.source_kind NOT IN ('snapshot', 'changes', 'queues')
      GROUP BY n.source, n.base, n.link, n.unlinked, n.backup_id, d.scope, d.epoch, d.generation, d.outcome
    ) AS f
    JOIN scopes AS s ON f.source = s.source AND f.scope = s.scope AND f.epoch = s.epoch AND f.generation = s.generation
    JOIN backups AS b ON s.backup_id = b.backup_id AND f.base = b.base AND f.link <= b.link AND b.link < f.unlinked
  ) AS w
  WHERE w.place = 1
  UNION ALL
  SELECT
    backup_id, outcome AS reason, MIN_BY(fault_backup_id, link) AS fault_backup_id, COUNT(*) AS faults,
    MIN_BY(destination, path) AS destination,
    MIN(path) AS path,
    NULLIF(MIN_BY(COALESCE(detail, ''), path), '') AS detail,
    MIN_BY(found_at, path) AS found_at
  FROM faulty
  GROUP BY backup_id, outcome
  UNION ALL
  SELECT
    c.backup_id, 'trial' AS reason, c.backup_id AS fault_backup_id, CAST(0 AS BIGINT) AS faults,
    CAST(NULL AS STRING) AS destination, CAST(NULL AS STRING) AS path, c.detail, c.at AS found_at
  FROM (
    SELECT k.*, ROW_NUMBER() OVER (PARTITION BY k.backup_id ORDER BY k.at DESC, k.outcome) AS place
    FROM checks AS k
    WHERE k.mode = 'restore'
  ) AS c
  WHERE c.place = 1 AND c.outcome = 'damaged'
)
SELECT
  b.source, b.backup_id, b.number, b.kind, b.state, b.base, b.end_ts, b.end_time,
  u.reason, u.fault_backup_id, e.state AS fault_state, u.faults, u.destination, u.path, u.detail,
  u.found_at, timestamp_micros(u.found_at) AS found_time
FROM unusable AS u
JOIN backups AS b ON u.backup_id = b.backup_id
LEFT JOIN raw_backups AS e ON u.fault_backup_id = e.backup_id
WHERE b.state <> 'deleted'

-- One row per backup of an engine's queues: which state of the engine it restores. The restored engine has everything
-- up to `last_tid`.
-- snapshot_id: for a full: the backup of the engine's snapshot that it depends on, in the source <engine>.snapshot
-- restore_id: the restore from which the backup continues; null: none
-- carried: number of messages at its start that belong to transactions open at the full before it
-- open_transactions: number of transactions that were open at its end
-- superseded: true: the engine was later restored to an earlier state, and continued from there
-- start_ts: the backup covers times after this: the end of what it depends on, or the time of the engine's restore
-- end_time: end_ts, in UTC
WITH jumps AS (
  -- Restores from which a backup continues. number is the first backup after the restore, at_number the backup that
  -- was restored. The backups between to_number and number were abandoned. A backup that was restored only in part is
  -- one of them.
  SELECT
    c.source, MIN(n.number) AS number, a.number AS at_number,
    CASE WHEN r.whole OR a.kind = 'full' THEN a.number ELSE a.number - 1 END AS to_number
  FROM raw_queue_points AS c
  JOIN raw_backups AS n ON c.backup_id = n.backup_id
  JOIN (SELECT DISTINCT restore_id, backup_id, whole FROM raw_queue_restores) AS r ON c.restore_id = r.restore_id
  JOIN raw_backups AS a ON r.backup_id = a.backup_id
  WHERE n.state <> 'unconfirmed'
  GROUP BY c.source, c.restore_id, a.number, a.kind, r.whole
),
-- The jumps of the current history, newest first. A jump that comes after the backup to which a later jump goes back
-- was abandoned, together with everything that followed that backup.
walks AS (
  SELECT
    j.source,
    AGGREGATE(
      SORT_ARRAY(
        COLLECT_LIST(ARRAY(NAMED_STRUCT('number', j.number, 'at_number', j.at_number, 'to_number', j.to_number))), FALSE
      ),
      ARRAY(NAMED_STRUCT('number', j.most, 'at_number', j.most, 'to_number', j.most)),
      (w, k) -> CASE WHEN ELEMENT_AT(k, 1).number <= ELEMENT_AT(w, -1).at_number THEN CONCAT(w, k) ELSE w END
    ) AS walk
  FROM (SELECT *, MAX(number) OVER (PARTITION BY source) AS most FROM jumps) AS j
  GROUP BY j.source, j.most
)
SELECT
  p.source, p.backup_id, b.number, b.kind, b.parent, b.base, p.first_tid, p.last_tid, p.snapshot_id, p.restore_id,
  p.carried, p.open_transactions,
  COALESCE(SIZE(FILTER(w.walk, k -> k.to_number < b.number AND b.number < k.number)) > 0, FALSE) AS superseded,
  b.start_ts, b.end_ts, b.start_time, b.end_time
FROM raw_queue_points AS p
JOIN backups AS b ON p.backup_id = b.backup_id
LEFT JOIN walks AS w ON p.source = w.source
WHERE b.state IN ('complete', 'out_of_sync')

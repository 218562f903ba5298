-- What each backup of an engine's queues brings back: the state in which everything up to last_tid is done.
-- snapshot_id: of a full: the backup of the engine's snapshot that it stands on, in the source <engine>.snapshot
-- restore_id: the restore behind which the backup goes on; null: none
-- carried: its messages in front, of transactions that were open at the full before
-- open_transactions: how many transactions were open at its end
-- superseded: true: the engine was put back to an earlier state since, and went on from there
-- end_time: end_ts, in UTC
SELECT
  p.source, p.backup_id, b.number, b.kind, b.parent, b.base, p.first_tid, p.last_tid, p.snapshot_id, p.restore_id, p.carried,
  p.open_transactions,
  EXISTS (
    SELECT 1
    FROM raw_queue_points AS c
    JOIN raw_backups AS n
      ON c.backup_id = n.backup_id
    JOIN (SELECT DISTINCT restore_id, backup_id, whole FROM raw_queue_restores) AS r
      ON c.restore_id = r.restore_id
    JOIN raw_backups AS a
      ON r.backup_id = a.backup_id
    WHERE c.source = p.source
      AND n.state <> 'deleted'
      AND b.number < n.number
      AND b.number > CASE WHEN r.whole THEN a.number ELSE a.number - 1 END
  ) AS superseded,
  b.start_ts, b.end_ts, b.start_time, b.end_time
FROM raw_queue_points AS p
JOIN backups AS b
  ON p.backup_id = b.backup_id

-- One row per restore of an engine and partition of its queues: where the restored messages begin and end. The next
-- backup of these queues continues after the newest restore into them.
-- backup_id: the last backup that was restored, completely or in part
-- whole: true: the restore reached the end of backup_id, and the next backup may depend on it; false: the next backup
--   depends on the full
-- last_tid: the engine had everything up to this tid
-- base_position: offset at which the messages that follow the full begin
-- end_position: offset after the last restored message
-- newest: true: the latest restore into this partition
-- time: at, in UTC
SELECT
  r.source, r.restore_id, r.at, r.actor, r.backup_id, r.full_id, r.whole, r.last_tid, r.cluster, r.scope, r.epoch,
  r.region, r.base_position, r.end_position,
  ROW_NUMBER() OVER (
    PARTITION BY r.source, r.cluster, r.epoch, r.region ORDER BY r.at DESC, r.restore_id DESC
  ) = 1 AS newest,
  timestamp_micros(r.at) AS time
FROM raw_queue_restores AS r

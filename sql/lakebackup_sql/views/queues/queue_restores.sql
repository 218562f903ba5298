-- Restores of engines, a row for each partition of their queues. The next backup of these queues goes on behind the
-- newest restore into them.
-- backup_id: the last backup that was brought back, whole or in part
-- whole: true: the end of backup_id was reached, and an incremental backup stands on it; else the next stands on the full
-- last_tid: the engine had everything up to this tid
-- base_position: offset behind which the messages that follow the full stand
-- end_position: offset behind the last restored message
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

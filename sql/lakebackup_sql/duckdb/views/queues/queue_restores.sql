-- fc7d73f2b32a61e8 raw_queue_restores
SELECT
  r.source,
  r.restore_id,
  r."at",
  r.actor,
  r.backup_id,
  r.full_id,
  r.whole,
  r.last_tid,
  r.cluster,
  r.scope,
  r.epoch,
  r.region,
  r.base_position,
  r.end_position,
  ROW_NUMBER() OVER (
    PARTITION BY r.source, r.cluster, r.epoch, r.region
    ORDER BY r."at" DESC, r.restore_id DESC
  ) = 1 AS newest,
  TIMESTAMP_MICROS(r."at") AS time
FROM raw_queue_restores AS r

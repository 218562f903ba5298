-- c1ef5227a39c320a positions raw_queue_positions
SELECT
  q.source,
  q.backup_id,
  q.scope,
  q.epoch,
  q.region,
  q.no_transaction_position,
  p.end_position,
  q.last_tid
FROM raw_queue_positions AS q
JOIN positions AS p
  ON q.backup_id = p.backup_id
  AND q.scope = p.scope
  AND q.epoch = p.epoch
  AND q.region = p.region

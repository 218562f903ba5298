-- 87351b6bebb55865 raw_positions raw_queue_positions
SELECT
  q.scope,
  q.epoch,
  q.region,
  p.end_position,
  p.leader_epoch,
  q.no_transaction_position,
  q.last_tid
FROM raw_queue_positions AS q
JOIN raw_positions AS p
  ON q.backup_id = p.backup_id
  AND q.scope = p.scope
  AND q.epoch = p.epoch
  AND q.region = p.region
WHERE
  q.backup_id = $backup_id AND p.backup_id = $backup_id
ORDER BY
  q.scope NULLS FIRST,
  TRY_CAST(q.region AS BIGINT) NULLS FIRST

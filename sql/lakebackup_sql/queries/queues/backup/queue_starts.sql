-- How far the backup :backup_id has read each partition of its queues, and from where on the next one must read.
-- leader_epoch: of the partition's leader then
SELECT q.scope, q.epoch, q.region, p.end_position, p.leader_epoch, q.no_transaction_position, q.last_tid
FROM raw_queue_positions AS q
JOIN raw_positions AS p ON q.backup_id = p.backup_id AND q.scope = p.scope AND q.epoch = p.epoch AND q.region = p.region
WHERE q.backup_id = :backup_id
  AND p.backup_id = :backup_id
ORDER BY q.scope, CAST(q.region AS BIGINT)

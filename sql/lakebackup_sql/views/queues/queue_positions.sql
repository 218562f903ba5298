-- One row per backup and queue partition: where to start reading so that no transaction that was open at the backup's
-- end is cut off.
-- end_position: offset up to which the backup read; for a full: up to which the engine's snapshot has the messages
-- last_tid: greatest tid in the partition so far; null: none
SELECT q.source, q.backup_id, q.scope, q.epoch, q.region, q.no_transaction_position, p.end_position, q.last_tid
FROM raw_queue_positions AS q
JOIN positions AS p ON q.backup_id = p.backup_id AND q.scope = p.scope AND q.epoch = p.epoch AND q.region = p.region

-- From where on each partition of a queue must be read to see whole every transaction open at a backup's end.
-- end_position: the offset up to which the backup has read; of a full: up to which the engine's snapshot has it
-- last_tid: greatest tid seen in the partition; null: none
SELECT q.source, q.backup_id, q.scope, q.epoch, q.region, q.no_transaction_position, p.end_position, q.last_tid
FROM raw_queue_positions AS q
JOIN positions AS p ON q.backup_id = p.backup_id AND q.scope = p.scope AND q.epoch = p.epoch AND q.region = p.region

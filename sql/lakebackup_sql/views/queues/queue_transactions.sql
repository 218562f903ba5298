-- One row per open transaction and partition that it wrote to: which transactions were open when a backup of an
-- engine's queues ended.
SELECT
  t.source, t.backup_id, b.number, t.transaction_id, t.scope, t.epoch, t.region, t.first_position, t.first_tid, t.entries
FROM raw_queue_transactions AS t
JOIN raw_backups AS b ON t.backup_id = b.backup_id
WHERE b.state IN ('complete', 'out_of_sync')

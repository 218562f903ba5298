-- The transactions that were open when the backup :backup_id of queues ended.
SELECT DISTINCT transaction_id FROM raw_queue_transactions WHERE backup_id = :backup_id ORDER BY transaction_id

-- 2206207bec9ef43c raw_queue_transactions
SELECT DISTINCT
  transaction_id
FROM raw_queue_transactions
WHERE
  backup_id = $backup_id
ORDER BY
  transaction_id NULLS FIRST

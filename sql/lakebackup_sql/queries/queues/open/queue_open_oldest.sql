-- The least tid that a message of the transactions has that seem to be open when a backup of queues ends
-- (queue_unended), but for those that were open when the backup :parent (null: none) ended.
SELECT MIN(u.first_tid) AS tid
FROM queue_unended AS u
LEFT ANTI JOIN (SELECT transaction_id FROM raw_queue_transactions WHERE backup_id = :parent) AS p
  ON u.transaction_id = p.transaction_id

-- The transactions that seem to be open when a backup of queues ends (queue_unended), and may have ended before
-- it began: of one that has a message with a tid up to :tid, the state at its beginning, the end may be in
-- another partition, before what was read there. Those that were open when the backup :parent (null: none) ended
-- had not ended by then.
SELECT DISTINCT u.transaction_id
FROM queue_unended AS u
LEFT ANTI JOIN (SELECT transaction_id FROM raw_queue_transactions WHERE backup_id = :parent) AS p
  ON u.transaction_id = p.transaction_id
WHERE u.first_tid <= CAST(:tid AS BIGINT)
ORDER BY u.transaction_id

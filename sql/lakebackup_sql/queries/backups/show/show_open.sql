-- The first :rows of the transactions that were open when the backup :backup_id of queues ended, the oldest first.
SELECT
  t.transaction_id, MIN(t.first_tid) AS first_tid, COUNT(*) AS partitions, CAST(SUM(t.entries) AS BIGINT) AS entries
FROM queue_transactions AS t
WHERE t.backup_id = :backup_id
GROUP BY t.transaction_id
ORDER BY first_tid, t.transaction_id
LIMIT :rows

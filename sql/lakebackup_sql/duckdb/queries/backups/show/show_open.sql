-- eb46247cea80ff3e queue_transactions
SELECT
  t.transaction_id,
  MIN(t.first_tid) AS first_tid,
  COUNT(*) AS partitions,
  CAST(SUM(t.entries) AS BIGINT) AS entries
FROM queue_transactions AS t
WHERE
  t.backup_id = $backup_id
GROUP BY
  t.transaction_id
ORDER BY
  first_tid NULLS FIRST,
  t.transaction_id NULLS FIRST
LIMIT $rows

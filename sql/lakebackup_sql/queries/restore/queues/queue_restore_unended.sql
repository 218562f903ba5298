-- The transactions that are open at a tid (relation queue_unended, made by queue_open). Of those that began before
-- :tid, the end of the backup :parent, and were not open then, the ones that are seen to end in the next backup
-- (relation queue_later): others may have ended before, and what was committed is not left out for what may be open.
SELECT DISTINCT u.transaction_id
FROM queue_unended AS u
LEFT JOIN (
  SELECT transaction_id FROM raw_queue_transactions WHERE backup_id = :parent
  UNION
  SELECT transaction_id FROM queue_later WHERE ended
) AS k ON u.transaction_id = k.transaction_id
WHERE u.first_tid > CAST(:tid AS BIGINT)
  OR k.transaction_id IS NOT NULL
ORDER BY u.transaction_id

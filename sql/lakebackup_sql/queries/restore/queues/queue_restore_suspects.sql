-- How many transactions seem to be open at a tid (relation queue_unended, made by queue_open), though they began before
-- :tid, the end of the backup :parent, and were not open then: their end was stored there, or is in the snapshot, and
-- what is seen of them was written to another queue after that was read.
SELECT COUNT(DISTINCT u.transaction_id) AS transactions
FROM queue_unended AS u
LEFT ANTI JOIN (
  SELECT transaction_id FROM raw_queue_transactions WHERE backup_id = :parent
) AS p ON u.transaction_id = p.transaction_id
WHERE u.first_tid <= CAST(:tid AS BIGINT)

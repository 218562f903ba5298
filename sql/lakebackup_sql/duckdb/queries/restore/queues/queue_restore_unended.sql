-- 4a897486c776a3cb queue_later queue_unended raw_queue_transactions
SELECT DISTINCT
  u.transaction_id
FROM queue_unended AS u
LEFT JOIN (
  SELECT
    transaction_id
  FROM raw_queue_transactions
  WHERE
    backup_id = $parent
  UNION
  SELECT
    transaction_id
  FROM queue_later
  WHERE
    ended
) AS k
  ON u.transaction_id = k.transaction_id
WHERE
  u.first_tid > TRY_CAST($tid AS BIGINT) OR NOT k.transaction_id IS NULL
ORDER BY
  u.transaction_id NULLS FIRST

-- e3b74524a474bbe2 queue_unended raw_queue_transactions
SELECT DISTINCT
  u.transaction_id
FROM queue_unended AS u
ANTI JOIN (
  SELECT
    transaction_id
  FROM raw_queue_transactions
  WHERE
    backup_id = $parent
) AS p
  ON u.transaction_id = p.transaction_id
WHERE
  u.first_tid <= TRY_CAST($tid AS BIGINT)
ORDER BY
  u.transaction_id NULLS FIRST

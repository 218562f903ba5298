-- e6b66a7dbe5f4e8c queue_unended raw_queue_transactions
SELECT
  COUNT(DISTINCT u.transaction_id) AS transactions
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

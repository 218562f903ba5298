-- d8c5732a6c691f64 queue_unended raw_queue_transactions
SELECT
  MIN(u.first_tid) AS tid
FROM queue_unended AS u
ANTI JOIN (
  SELECT
    transaction_id
  FROM raw_queue_transactions
  WHERE
    backup_id = $parent
) AS p
  ON u.transaction_id = p.transaction_id

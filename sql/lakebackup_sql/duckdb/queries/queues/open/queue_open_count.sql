-- 1fe34652d1ec74ff queue_unended
SELECT
  COUNT(DISTINCT transaction_id) AS transactions
FROM queue_unended

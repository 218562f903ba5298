SELECT
  COUNT(DISTINCT transaction_id) AS transactions
FROM queue_unended

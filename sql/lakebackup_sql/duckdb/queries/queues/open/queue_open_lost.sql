-- b5accdb30e18a09e queue_gone
SELECT
  g.transaction_id,
  COUNT(*) OVER () AS transactions
FROM queue_gone AS g
ORDER BY
  g.transaction_id NULLS FIRST
LIMIT 3

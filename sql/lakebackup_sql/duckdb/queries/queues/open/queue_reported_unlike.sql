-- a1355e82d9397f44 queue_found queue_reported
SELECT
  t.transaction_id
FROM queue_reported AS t
ANTI JOIN queue_found AS f
  ON t.transaction_id = f.transaction_id
ORDER BY
  t.transaction_id NULLS FIRST
LIMIT 3

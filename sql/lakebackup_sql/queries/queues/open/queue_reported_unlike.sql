-- Transactions that the engine reports as open (queue_reported) and that are not open in the queues.
SELECT t.transaction_id
FROM queue_reported AS t
LEFT ANTI JOIN queue_found AS f ON t.transaction_id = f.transaction_id
ORDER BY t.transaction_id
LIMIT 3

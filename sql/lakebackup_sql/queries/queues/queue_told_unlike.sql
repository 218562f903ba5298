-- Transactions that the engine says are open (queue_told), and of which the queues say otherwise.
SELECT t.transaction_id
FROM queue_told AS t
LEFT ANTI JOIN queue_found AS f ON t.transaction_id = f.transaction_id
ORDER BY t.transaction_id
LIMIT 3

-- Some of the transactions that nothing can continue after a full (queue_gone), and how many they are.
SELECT g.transaction_id, COUNT(*) OVER () AS transactions
FROM queue_gone AS g
ORDER BY g.transaction_id
LIMIT 3

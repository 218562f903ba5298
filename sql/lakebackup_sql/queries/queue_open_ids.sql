-- The transactions that are open, or seem to be, when a backup of queues ends (queue_unended).
SELECT DISTINCT transaction_id FROM queue_unended ORDER BY transaction_id

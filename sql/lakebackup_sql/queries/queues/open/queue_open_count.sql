-- How many transactions are open when a backup of queues ends (queue_unended).
SELECT COUNT(DISTINCT transaction_id) AS transactions FROM queue_unended

-- The transactions that did not end by a tid (relation queue_unended, made by queue_open).
SELECT DISTINCT transaction_id FROM queue_unended ORDER BY transaction_id

-- A message of a transaction that is open (queue_unended) where none has one by the engine's own account: before what
-- of its partition was read first.
SELECT s.transaction_id, s.scope, s.region, s.first_position
FROM queue_seen AS s
JOIN (SELECT DISTINCT transaction_id FROM queue_unended) AS u ON s.transaction_id = u.transaction_id
WHERE s.entries = 0
ORDER BY s.transaction_id, s.scope, s.region, s.first_position
LIMIT 1

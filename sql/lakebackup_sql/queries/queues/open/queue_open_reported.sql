-- The transactions of queue_found that are open, but for those that nothing can continue (queue_gone). With :reported,
-- only those that the engine itself names (queue_reported).
SELECT f.transaction_id, f.scope, f.epoch, f.region, f.first_position, f.first_tid, f.entries
FROM queue_found AS f
LEFT ANTI JOIN queue_gone AS g ON f.transaction_id = g.transaction_id
WHERE NOT :reported OR f.transaction_id IN (SELECT t.transaction_id FROM queue_reported AS t)

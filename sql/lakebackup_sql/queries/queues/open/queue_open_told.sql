-- The transactions of queue_found that are open, but for those that nothing can continue (queue_gone); when :told, only
-- those that the engine itself names (queue_told).
SELECT f.transaction_id, f.scope, f.epoch, f.region, f.first_position, f.first_tid, f.entries
FROM queue_found AS f
LEFT ANTI JOIN queue_gone AS g ON f.transaction_id = g.transaction_id
WHERE NOT :told OR f.transaction_id IN (SELECT t.transaction_id FROM queue_told AS t)

-- The transactions of queue_found that nothing can continue after a full: a message of theirs is before
-- the beginning of its partition (queue_lows), or in a partition that is gone.
SELECT DISTINCT f.transaction_id
FROM queue_found AS f
LEFT JOIN queue_lows AS l ON f.scope = l.scope AND f.epoch = l.epoch AND f.region = l.region
WHERE l.low_position IS NULL OR f.first_position < l.low_position

-- The transactions that seem to be open when a backup of queues ends (queue_unended), and of which the end may stand in
-- another partition, before what was read there: those that were first seen between the positions of queue_late.
SELECT DISTINCT u.transaction_id
FROM queue_unended AS u
JOIN queue_late AS l
  ON u.scope = l.scope
  AND u.epoch = l.epoch
  AND u.region = l.region
WHERE u.first_position >= l.from_position AND u.first_position < l.to_position
ORDER BY u.transaction_id

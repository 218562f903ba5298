SELECT DISTINCT
  u.transaction_id
FROM queue_unended AS u
JOIN queue_late AS l
  ON u.scope = l.scope AND u.epoch = l.epoch AND u.region = l.region
WHERE
  u.first_position >= l.from_position AND u.first_position < l.to_position
ORDER BY
  u.transaction_id NULLS FIRST

-- b20a94f65bc60f2c queue_found queue_lows
SELECT DISTINCT
  f.transaction_id
FROM queue_found AS f
LEFT JOIN queue_lows AS l
  ON f.scope = l.scope AND f.epoch = l.epoch AND f.region = l.region
WHERE
  l.low_position IS NULL OR f.first_position < l.low_position

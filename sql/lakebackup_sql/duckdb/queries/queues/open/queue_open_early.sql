-- bc6fb743f6a2a6e3 queue_seen queue_unended
SELECT
  s.transaction_id,
  s.scope,
  s.region,
  s.first_position
FROM queue_seen AS s
JOIN (
  SELECT DISTINCT
    transaction_id
  FROM queue_unended
) AS u
  ON s.transaction_id = u.transaction_id
WHERE
  s.entries = 0
ORDER BY
  s.transaction_id NULLS FIRST,
  s.scope NULLS FIRST,
  s.region NULLS FIRST,
  s.first_position NULLS FIRST
LIMIT 1

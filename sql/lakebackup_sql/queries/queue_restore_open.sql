-- The transactions open at the end of backup :backup_id (null: none), or seen since (relation seen), without those that
-- ended since.
SELECT o.transaction_id
FROM (
  SELECT t.transaction_id
  FROM queue_transactions AS t
  WHERE t.backup_id = :backup_id
  UNION
  SELECT s.transaction_id
  FROM seen AS s
) AS o
LEFT ANTI JOIN (
  SELECT e.transaction_id
  FROM seen AS e
  WHERE e.ended
) AS e
  ON o.transaction_id = e.transaction_id

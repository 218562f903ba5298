-- 5a539369a773f307 queue_found queue_gone queue_reported
SELECT
  f.transaction_id,
  f.scope,
  f.epoch,
  f.region,
  f.first_position,
  f.first_tid,
  f.entries
FROM queue_found AS f
ANTI JOIN queue_gone AS g
  ON f.transaction_id = g.transaction_id
WHERE
  NOT $reported
  OR f.transaction_id IN (
    SELECT
      t.transaction_id
    FROM queue_reported AS t
  )

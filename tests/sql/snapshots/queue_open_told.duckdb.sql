SELECT
  f.transaction_id,
  f.scope,
  f.epoch,
  f.region,
  f.first_position,
  f.first_tid,
  f.entries
FROM queue_found AS f
WHERE
  NOT $told
  OR f.transaction_id IN (
    SELECT
      t.transaction_id
    FROM queue_told AS t
  )

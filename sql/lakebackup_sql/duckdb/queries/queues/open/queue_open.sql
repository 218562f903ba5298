-- 1c8ef6a1383af529 queue_seen raw_queue_transactions
SELECT
  o.transaction_id,
  o.scope,
  o.epoch,
  o.region,
  MIN(o.first_position) AS first_position,
  MIN(o.first_tid) AS first_tid,
  CAST(SUM(o.entries) AS BIGINT) AS entries
FROM (
  SELECT
    transaction_id,
    scope,
    epoch,
    region,
    first_position,
    first_tid,
    entries
  FROM queue_seen
  UNION ALL
  SELECT
    transaction_id,
    scope,
    epoch,
    region,
    first_position,
    first_tid,
    entries
  FROM raw_queue_transactions
  WHERE
    backup_id = $parent
) AS o
ANTI JOIN (
  SELECT DISTINCT
    transaction_id
  FROM queue_seen
  WHERE
    ended
) AS e
  ON o.transaction_id = e.transaction_id
GROUP BY
  o.transaction_id,
  o.scope,
  o.epoch,
  o.region
HAVING
  SUM(o.entries) > 0

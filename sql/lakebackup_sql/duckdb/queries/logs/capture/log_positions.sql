-- 9401e8f5edeebdcd backups raw_positions
SELECT
  p.scope,
  p.epoch,
  p.region,
  p.end_position,
  p.leader_epoch
FROM (
  SELECT
    o.scope,
    o.epoch,
    o.region,
    o.end_position,
    o.leader_epoch,
    ROW_NUMBER() OVER (PARTITION BY o.scope, o.epoch, o.region ORDER BY b.number DESC) AS nth
  FROM raw_positions AS o
  JOIN backups AS b
    ON o.backup_id = b.backup_id
  WHERE
    o.source = $source
    AND b.source = $source
    AND b.kind = 'log'
    AND b.state <> 'unconfirmed'
) AS p
WHERE
  p.nth = 1
ORDER BY
  p.scope NULLS FIRST,
  p.epoch NULLS FIRST,
  TRY_CAST(p.region AS BIGINT) NULLS FIRST

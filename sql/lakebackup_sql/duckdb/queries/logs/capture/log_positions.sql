-- 092874a1ae4b99a0 backups raw_positions
SELECT
  p.scope,
  p.epoch,
  p.region,
  MAX(p.end_position) AS end_position
FROM raw_positions AS p
JOIN backups AS b
  ON p.backup_id = b.backup_id
WHERE
  p.source = $source
  AND b.source = $source
  AND b.kind = 'log'
  AND b.state <> 'unconfirmed'
GROUP BY
  p.scope,
  p.epoch,
  p.region
ORDER BY
  p.scope NULLS FIRST,
  p.epoch NULLS FIRST,
  TRY_CAST(p.region AS BIGINT) NULLS FIRST

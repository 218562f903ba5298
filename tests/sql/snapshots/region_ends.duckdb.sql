SELECT
  scope,
  epoch,
  region,
  end_position,
  end_ts,
  number,
  backup_id,
  leader_epoch,
  in_chain
FROM (
  SELECT
    p.scope,
    p.epoch,
    p.region,
    p.end_position,
    b.end_ts,
    b.number,
    b.backup_id,
    p.leader_epoch,
    b.base = $base AS in_chain,
    ROW_NUMBER() OVER (PARTITION BY p.scope, p.epoch, p.region, b.base = $base ORDER BY b.number DESC) AS newest
  FROM raw_positions AS p
  JOIN backups AS b
    ON b.backup_id = p.backup_id
  WHERE
    b.source = $source AND p.source = $source AND b.state = 'complete' AND b.intact
) AS numbered
WHERE
  newest = 1
ORDER BY
  scope NULLS FIRST,
  epoch NULLS FIRST,
  TRY_CAST(region AS BIGINT) NULLS FIRST,
  number NULLS FIRST

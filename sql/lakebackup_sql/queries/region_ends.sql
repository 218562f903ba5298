-- How far each partition was ever backed up: the last position that the chain on :base covers, where the
-- next differential continues (in_chain), and the last one of other chains, behind which a gap may lie.
SELECT scope, epoch, region, end_position, end_ts, number, backup_id, leader_epoch, in_chain
FROM (
  SELECT
    p.scope, p.epoch, p.region, p.end_position, b.end_ts, b.number, b.backup_id, p.leader_epoch,
    b.base = :base AS in_chain,
    row_number() OVER (PARTITION BY p.scope, p.epoch, p.region, b.base = :base ORDER BY b.number DESC) AS newest
  FROM raw_positions AS p
  JOIN backups AS b ON b.backup_id = p.backup_id
  WHERE b.source = :source AND p.source = :source AND b.state = 'complete' AND b.intact
) AS numbered
WHERE newest = 1
ORDER BY scope, epoch, CAST(region AS BIGINT), number

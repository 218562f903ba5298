-- Where every backup that can be restored ended in the partitions of the relation `suspected`, in the order of what the
-- backups hold: the last :last of each partition, null: all.
SELECT place, scope, epoch, region, position, leader_epoch
FROM (
  SELECT
    b.place, b.number, p.scope, p.epoch, p.region, p.end_position AS position, p.leader_epoch,
    ROW_NUMBER() OVER (PARTITION BY p.scope, p.epoch, p.region ORDER BY b.place DESC, b.number DESC) AS nth
  FROM raw_positions AS p
  JOIN backups AS b ON p.backup_id = b.backup_id
  JOIN suspected AS s ON p.scope = s.scope AND p.epoch = s.epoch AND p.region = s.region
  WHERE p.source = :source
    AND b.source = :source
    AND b.state = 'complete'
    AND b.chained
    AND b.place <= s.place
) AS n
WHERE CAST(:last AS BIGINT) IS NULL OR nth <= :last
ORDER BY scope, epoch, region, place, number

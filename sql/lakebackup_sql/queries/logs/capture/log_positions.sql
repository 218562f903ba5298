-- Up to which offset a log task has read each partition, by its newest flush that read it: after a partition was cut
-- back, a later one has less. An unconfirmed flush does not count: no restore uses what it captured, so the next one has
-- to capture it again.
-- leader_epoch: of the partition's leader then
SELECT p.scope, p.epoch, p.region, p.end_position, p.leader_epoch
FROM (
  SELECT
    o.scope, o.epoch, o.region, o.end_position, o.leader_epoch,
    ROW_NUMBER() OVER (PARTITION BY o.scope, o.epoch, o.region ORDER BY b.number DESC) AS nth
  FROM raw_positions AS o
  JOIN backups AS b ON o.backup_id = b.backup_id
  WHERE o.source = :source AND b.source = :source AND b.kind = 'log' AND b.state <> 'unconfirmed'
) AS p
WHERE p.nth = 1
ORDER BY p.scope, p.epoch, CAST(p.region AS BIGINT)

-- One row per known committed offset of a consumer group: which offset the group had committed for a partition, and
-- when. The offsets come from the records of `__consumer_offsets`, each of which counts once, and from what the cluster
-- reported at each backup.
-- position: next offset that the group reads; null: it was erased, for example because its topic was deleted
-- epoch: topic id; null: not in the record, or the topic no longer existed
-- metadata: what the group stored with the offset
-- leader_epoch: leader epoch that the group committed
-- ts: when it was committed (log) or read (backup), in ms; for an offset in a transaction: when it was sent
-- time: ts, in UTC
-- seen: source of the offset: log: a record of __consumer_offsets; backup: the cluster's report when a backup began
-- backup_id: the backup that holds it; if several do, one of them
-- log_position: offset of the record; null: seen is backup
SELECT
  source, group_id, scope, epoch, region, position, metadata, leader_epoch, ts,
  CASE WHEN ts >= 0 THEN timestamp_millis(ts) END AS time,
  seen, backup_id, log_position
FROM (
  SELECT
    c.source, c.group_id, c.scope, c.epoch, c.region, c.position, c.metadata, c.leader_epoch,
    coalesce(c.commit_ts, c.log_ts) AS ts,
    'log' AS seen, c.backup_id, c.log_position,
    row_number() OVER (
      PARTITION BY c.source, c.log_epoch, c.log_region, c.log_position ORDER BY c.backup_id
    ) AS copy
  FROM group_commits AS c
  WHERE c.kind = 'offset' AND c.problem IS NULL
  UNION ALL
  SELECT
    g.source, g.group_id, g.scope, g.epoch, g.region, g.position, g.metadata, g.leader_epoch, g.ts,
    'backup' AS seen, g.backup_id, CAST(NULL AS BIGINT) AS log_position, 1 AS copy
  FROM groups AS g
  WHERE g.position IS NOT NULL
) AS known
WHERE copy = 1

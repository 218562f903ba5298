-- One row per backup, consumer group and partition: which offset the group had committed when the backup began. Only
-- committed backups count. The position of a share group cannot be saved, so its row has no topic, partition or
-- position.
-- scope: topic; null: the group's position is not saved
-- region: partition number, as text; null: the group's position is not saved
-- position: next offset that the group reads; null: the group's position is not saved
-- protocol: classic, consumer, streams or share
-- time: ts, in UTC
SELECT
  g.backup_id, g.source, g.group_id, g.protocol, g.state,
  nullif(g.scope, '') AS scope,
  g.epoch,
  nullif(g.region, '') AS region,
  CASE WHEN g.scope <> '' THEN g.position END AS position,
  g.leader_epoch, g.metadata, g.ts,
  timestamp_millis(g.ts) AS time
FROM raw_groups AS g
JOIN raw_backups AS b ON b.backup_id = g.backup_id
WHERE b.state IN ('complete', 'out_of_sync')

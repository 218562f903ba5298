-- What a topic can be restored to: one row for each backup that holds it. The row answers for every
-- time in (covers_from, covers_to]; epoch is the topic's id then; newest marks the last of a topic.
SELECT
  b.source,
  s.scope,
  s.epoch,
  b.destination,
  b.backup_id,
  b.base,
  b.number,
  b.kind,
  s.regions,
  s.replication,
  s.settings,
  s.generation,
  COALESCE(LAG(b.end_ts) OVER (PARTITION BY b.source, s.scope ORDER BY b.number), -1) AS covers_from,
  b.end_ts AS covers_to,
  ROW_NUMBER() OVER (PARTITION BY b.source, s.scope ORDER BY b.number DESC) = 1 AS newest
FROM scopes AS s
JOIN backups AS b
  ON s.backup_id = b.backup_id
WHERE b.state = 'complete'
  AND b.intact

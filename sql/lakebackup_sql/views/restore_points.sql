-- What a topic can be restored to: one row for each backup that holds it. The row answers for every
-- time in (covers_from, covers_to]; epoch is the topic's id then; newest marks the last of a topic.
-- Left out: backups that are not whole, and generations that a prune let go. Of two that end at the same
-- instant (a backup and its compaction) the later answers for it, the earlier for the times before.
SELECT
  p.source, p.scope, p.epoch, p.destination, p.backup_id, p.base, p.number, p.kind, p.regions, p.replication,
  p.settings, p.generation,
  COALESCE(LAG(p.covers_to) OVER (PARTITION BY p.source, p.scope ORDER BY p.number), -1) AS covers_from,
  p.covers_to,
  ROW_NUMBER() OVER (PARTITION BY p.source, p.scope ORDER BY p.number DESC) = 1 AS newest
FROM (
  SELECT
    b.source, s.scope, s.epoch, b.destination, b.backup_id, b.base, b.number, b.kind, s.regions, s.replication,
    s.settings, s.generation,
    CASE
      WHEN LEAD(b.end_ts) OVER (PARTITION BY b.source, s.scope ORDER BY b.number) = b.end_ts THEN b.end_ts - 1
      ELSE b.end_ts
    END AS covers_to
  FROM scopes AS s
  JOIN backups AS b
    ON s.backup_id = b.backup_id
  LEFT JOIN (
    SELECT source, scope, epoch, MAX(generation) AS generation FROM raw_floors GROUP BY source, scope, epoch
  ) AS l
    ON s.source = l.source AND s.scope = l.scope AND s.epoch = l.epoch
  WHERE b.state = 'complete'
    AND b.intact
    AND s.generation >= COALESCE(l.generation, 0)
) AS p

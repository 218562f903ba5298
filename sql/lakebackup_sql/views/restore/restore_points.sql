-- What a topic can be restored to: one row for each backup that holds it. The row covers every time in
-- (covers_from, covers_to]; epoch is the topic's id then. A snapshot covers its own instant alone. A change feed
-- is one scope, '-': a flush of its log covers the times from the checkpoint before it (or the floor of a
-- truncated log) to its own, a full for its own instant. A source of another program is one scope, '-', too: a log
-- covers the times from start_ts to its own (those that lack a backup to start from are here too: see coverage and
-- restore_paths), any other backup its own instant. A full of an engine's queues covers its own instant; its
-- other backups for the times after what they depend on. Left out: backups that are not whole, topics of which verify
-- found a file missing or damaged, and generations that a prune deleted. Of two that end at the same instant (a backup
-- and its compaction) the later covers it, the earlier for the times before. A backup that ended before an open
-- transaction covers no time after that began.
-- settings: JSON: what the topic overrides, by name; under inherited, by origin (broker, default), what else was in
--   force
-- covers_from: the end of the restore point before; -1: none is before
-- covers_to: the last instant that the backup covers
-- newest: true: the last restore point of its topic
-- covers_from_time: covers_from, in UTC; null: none is before
-- covers_to_time: covers_to, in UTC
SELECT
  p.source, p.scope, p.epoch, p.destination, p.backup_id, p.base, p.number, p.place, p.link, p.kind, p.regions,
  p.replication, p.settings, p.generation, p.covers_from, p.covers_to,
  -- The last one is the last of those that are whole.
  ROW_NUMBER() OVER (PARTITION BY p.source, p.scope ORDER BY p.newest DESC, p.covers_to DESC, p.number DESC) = 1 AS newest,
  p.ts_domain, p.covers_from_time, p.covers_to_time
FROM chain_points AS p
LEFT ANTI JOIN damaged_points AS d ON p.backup_id = d.backup_id AND p.scope = COALESCE(d.scope, p.scope)

-- One row per topic and backup that can restore it: which times the backup covers. It covers every time in
-- (covers_from, covers_to]. `epoch` is the topic's id at that backup. A snapshot covers only its own instant. A change
-- feed is one scope, '-'. A flush of its log covers the times from the previous checkpoint (or the floor of a truncated
-- log) to its own checkpoint. A full of a change feed covers only its own instant. A source of another program is one
-- scope, '-', too. One of its logs covers the times from its start_ts to its end_ts, and any other backup covers only
-- its own instant. Logs without a backup to start from are included (see `coverage` and `restore_paths`). A full of an
-- engine's queues covers only its own instant. The other backups of the queues cover the times after what they depend
-- on. Left out are backups that are not complete or lack a backup of their chain, topics for which verify found a file
-- missing or damaged, and generations that a prune deleted. If two backups end at the same instant (a backup and its
-- compaction), the later one covers that instant, and the earlier one covers the times before it. If an open
-- transaction hid records from a backup, the backup covers no time after that transaction began.
-- settings: JSON: the settings that the topic overrides, by name; under inherited: the other settings in force, by
--   origin (broker, default)
-- covers_from: the end of the previous restore point; -1: there is none
-- covers_to: the last instant that the backup covers
-- newest: true: the last restore point of its topic
-- covers_from_time: covers_from, in UTC; null: there is no previous restore point
-- covers_to_time: covers_to, in UTC
SELECT
  p.source, p.scope, p.epoch, p.destination, p.backup_id, p.base, p.number, p.place, p.link, p.kind, p.regions,
  p.replication, p.settings, p.generation, p.covers_from, p.covers_to,
  -- Damaged points are left out, so the newest row is the newest of the intact ones.
  ROW_NUMBER() OVER (PARTITION BY p.source, p.scope ORDER BY p.newest DESC, p.covers_to DESC, p.number DESC) = 1 AS newest,
  p.ts_domain, p.covers_from_time, p.covers_to_time
FROM chain_points AS p
LEFT ANTI JOIN damaged_points AS d ON p.backup_id = d.backup_id AND p.scope = COALESCE(d.scope, p.scope)

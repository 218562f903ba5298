-- One row per backup: whether the policy of its source keeps it or makes it obsolete, and why. A backup stays if any
-- rule of the policy keeps it: the window, the redundancy or a keep_… rule. A keep_… rule keeps the newest usable
-- backup of each of the last so many hours, days, weeks, months or years that have one, in the policy's time zone.
-- keep_differentials limits what the redundancy keeps. As the only rule, it limits what depends on any full. If a
-- backup stays, the backups that it needs stay too. What depends on an obsolete backup is obsolete too. A backup of a
-- snapshot depends on no other backup and counts as a full. A log of another program depends on no other backup either.
-- It stays if it holds anything from after the earliest backup that stays.
-- status: KEEP (a person put it on hold), VALID (it stays), OBSOLETE (lakebackup prune --delete deletes it), DELETED
-- reason: for KEEP: held; for VALID: no_limit (nothing limits it), window (it is needed to restore to a time in the
--   recovery window), redundancy (it depends on one of the newest fulls), last, hourly, daily, weekly, monthly, yearly
--   (that rule keeps it), minimum (without it there would be fewer fulls than min_redundancy), inherited (it depends on
--   a backup on hold), needed (because_of needs it: a backup that depends on it, or an engine's full whose snapshot it
--   is; a log is needed by the backups before it), restored (an engine was restored to it and has not been backed up
--   since), unconfirmed, future (a clock was ahead when it was taken, so no rule counts it, see `future_backups`); for
--   OBSOLETE: window, redundancy, both, rules (there are keep_… rules, and no rule keeps it), superseded (no restore in
--   the window uses it), merged (because_of holds it and covers all its topics), pruned (see `pruned_backups`),
--   out_of_sync; for DELETED: deleted
-- because_of: the backup that needs this one, or into which this one was merged
WITH bound AS (
  SELECT
    j.*,
    MIN(CASE WHEN j.stays IS NOT NULL THEN j.link END) OVER later AS next_link,
    MIN_BY(
      CASE WHEN j.stays IS NOT NULL THEN j.backup_id END, CASE WHEN j.stays IS NOT NULL THEN j.link END
    ) OVER later AS next_id
  FROM retention AS j
  WINDOW later AS (
    PARTITION BY j.source, j.base ORDER BY j.link DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )
)
SELECT
  c.source, c.backup_id, c.number, c.kind, c.level, c.base, c.parent, c.place, c.link, c.state, c.end_ts, c.end_time,
  c.files, c.bytes,
  CASE
    WHEN c.state = 'deleted' THEN 'DELETED'
    WHEN c.stays = 'held' THEN 'KEEP'
    WHEN c.stays IS NOT NULL OR c.needed THEN 'VALID'
    ELSE 'OBSOLETE'
  END AS status,
  CASE
    WHEN c.state = 'deleted' THEN 'deleted'
    WHEN c.stays IS NOT NULL THEN c.stays
    WHEN c.needed THEN 'needed'
    WHEN c.state = 'out_of_sync' THEN 'out_of_sync'
    WHEN c.merged_into IS NOT NULL THEN 'merged'
    WHEN c.pruned THEN 'pruned'
    WHEN c.has_rules THEN 'rules'
    WHEN c.window_days IS NULL THEN 'redundancy'
    WHEN c.redundancy IS NOT NULL THEN 'both'
    WHEN c.base_place >= c.window_place THEN 'superseded'
    ELSE 'window'
  END AS reason,
  CASE
    WHEN c.stays = 'needed' THEN c.engine_full
    WHEN c.state = 'deleted' OR c.stays IS NOT NULL THEN NULL
    WHEN c.needed THEN c.next_id
    ELSE c.merged_into
  END AS because_of
FROM (
  SELECT
    n.*,
    CASE
      WHEN n.is_log THEN COALESCE(
        n.end_ts > MIN(CASE WHEN NOT n.is_log AND (n.stays IS NOT NULL OR n.depended) THEN n.end_ts END) OVER (
          PARTITION BY n.source
        ),
        TRUE
      )
      ELSE n.depended
    END AS needed
  FROM (SELECT b.*, COALESCE(b.next_link < b.unlinked, FALSE) AS depended FROM bound AS b) AS n
) AS c

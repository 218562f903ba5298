-- One row per backup: what the rules of retention ask about it, and the policy of its source. Each view kept_by_… is one
-- rule over these rows; `retention` joins them.
-- pruned: true: partitions of it were pruned, see `pruned_backups`
-- engine_full: the newest full that includes this snapshot of an engine; null: no full includes it
-- restored: true: an engine was restored to it and has not been backed up since
-- future: true: a clock was ahead when it was taken
-- held: true: a person put it on hold
-- is_log: true: it is a log of another program, which depends on no other backup
-- usable: true: rules count it, because it can be restored and nothing replaces it
-- is_full: true: it is usable and depends on no other backup
-- is_first: true: it is usable, and a full or a backup directly on a full; keep_differentials counts these
-- ended_ms: when it ended, ms since 1970 UTC
-- base_place: the place of the first backup of its chain
-- window_place: the place of the newest full from before the recovery window; null: there is none
-- time_zone: the policy's time zone
-- has_rules: true: the policy has a keep_… rule
WITH facts AS (
  SELECT
    b.backup_id, b.source, b.number, b.kind, b.level, b.base, b.parent, b.place, b.parent_place, b.link, b.unlinked,
    b.state, b.end_ts, b.end_time, b.files, b.bytes, g.merged_into,
    y.backup_id IS NOT NULL AS pruned,
    e.full_id AS engine_full,
    r.source IS NOT NULL AS restored,
    v.backup_id IS NOT NULL AS future,
    h.backup_id IS NOT NULL AND b.state <> 'deleted' AS held,
    b.kind = 'log' AND o.source_kind IS NULL AS is_log,
    b.state = 'complete' AND b.intact AND f.backup_id IS NULL AND g.backup_id IS NULL AND y.backup_id IS NULL
      AND v.backup_id IS NULL
      AND NOT (b.kind = 'log' AND o.source_kind IS NULL) AS usable,
    CASE WHEN b.ts_domain = 'ms' THEN b.end_ts ELSE CAST(FLOOR(b.finished_at / 1000) AS BIGINT) END AS ended_ms,
    MIN(b.place) OVER (PARTITION BY b.source, b.base) AS base_place
  FROM backups AS b
  LEFT JOIN own_kinds AS o ON b.source_kind = o.source_kind
  LEFT JOIN merged_backups AS g ON b.backup_id = g.backup_id
  LEFT JOIN pruned_backups AS y ON b.backup_id = y.backup_id
  LEFT JOIN (
    SELECT backup_id FROM faults WHERE mode <> 'keys'
    UNION
    SELECT backup_id FROM unusable_backups WHERE reason IN ('chain', 'missing', 'changed', 'damaged')
  ) AS f ON b.backup_id = f.backup_id
  LEFT JOIN future_backups AS v ON b.backup_id = v.backup_id
  LEFT JOIN holds AS h ON b.backup_id = h.backup_id
  LEFT JOIN (
    SELECT q.snapshot_id, MAX_BY(f.backup_id, f.number) AS full_id
    FROM raw_queue_points AS q
    JOIN raw_backups AS f ON q.backup_id = f.backup_id
    WHERE f.state IN ('complete', 'unconfirmed')
    GROUP BY q.snapshot_id
  ) AS e ON b.backup_id = e.snapshot_id
  LEFT JOIN restored_engines AS r ON b.source = r.source AND (b.backup_id = r.backup_id OR b.backup_id = r.full_id)
)
SELECT
  k.*,
  k.usable AND k.parent_place IS NULL AS is_full,
  k.usable AND (k.parent_place IS NULL OR k.parent_place = k.base_place) AS is_first,
  MAX(CASE WHEN k.usable AND k.parent_place IS NULL AND k.ended_ms <= p.window_from_ts THEN k.place END) OVER (
    PARTITION BY k.source
  ) AS window_place,
  p.window_days, p.window_from_ts, p.redundancy, p.min_redundancy, p.keep_last, p.keep_hourly, p.keep_daily,
  p.keep_weekly, p.keep_monthly, p.keep_yearly, p.keep_differentials,
  COALESCE(NULLIF(p.time_zone, ''), 'UTC') AS time_zone,
  COALESCE(p.keep_last, p.keep_hourly, p.keep_daily, p.keep_weekly, p.keep_monthly, p.keep_yearly) IS NOT NULL AS has_rules
FROM facts AS k
LEFT JOIN policies AS p ON k.source = p.source

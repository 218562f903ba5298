-- Each source: its status (the view `status`), the worst first, its policy, how much there is, and how many of its
-- topics cannot be restored at all (`protected`).
-- restorable_ts: the newest instant to which all its topics in `protected` can be restored; as in `status` where none
--   of its topics is there
-- unreadable: a schedule of its policy cannot be read
-- late_ms: for how long a run has been due; null: none is; drill_late_ms: as that, a drill. Times in ms, but for those that end in `_at`.
SELECT
  r.source, r.source_kind, r.status,
  CASE WHEN r.missed > 0 THEN (SELECT now_ms FROM clock) - r.due_ts END AS late_ms,
  x.source IS NOT NULL AS unreadable,
  r.damaged, r.unprotected, r.future, r.lost, r.backup_id, r.finished_at, r.duration_ms,
  r.counted_ts AS restorable_ts,
  (SELECT now_ms FROM clock) - r.counted_ts AS lag_ms,
  r.due_ts, r.verified_at, UNIX_MILLIS(r.last_drill) AS drilled_ts, r.drill_failures, r.drill_outcome,
  r.drill_backup_id, r.drill_failure,
  CASE WHEN (SELECT now_ms FROM clock) >= r.drill_due_ts THEN (SELECT now_ms FROM clock) - r.drill_due_ts END
    AS drill_late_ms,
  r.failed_runs,
  r.failed_run, UNIX_MILLIS(r.last_failure) AS failed_ts, r.failure, r.held_bytes,
  COALESCE(b.backups, 0) AS backups,
  r.topics, r.gone,
  l.full_at, p.source IS NOT NULL AS has_policy, p.full_schedule, p.incremental_schedule, p.window_days, p.redundancy,
  p.keep, p.time_zone, p.patterns, p.command
FROM (
  SELECT
    s.*,
    COALESCE(t.topics, 0) AS topics,
    COALESCE(t.gone, 0) AS gone,
    COALESCE(t.lost, 0) AS lost,
    CASE
      WHEN t.lost > 0 THEN NULL
      WHEN t.topics > 0 THEN t.all_ts
      ELSE COALESCE(UNIX_MILLIS(s.restorable_time), s.restorable_ts)
    END AS counted_ts
  FROM status AS s
  LEFT JOIN (
    SELECT
      source,
      COUNT(CASE WHEN present THEN 1 END) AS topics,
      COUNT(CASE WHEN NOT present THEN 1 END) AS gone,
      COUNT(CASE WHEN present AND restorable_ts IS NULL THEN 1 END) AS lost,
      MIN(CASE WHEN present THEN restorable_ts END) AS all_ts
    FROM protected
    GROUP BY source
  ) AS t ON s.source = t.source
) AS r
LEFT JOIN policies AS p ON r.source = p.source
LEFT JOIN (SELECT DISTINCT source FROM due_runs WHERE due_ts IS NULL) AS x ON r.source = x.source
LEFT JOIN (SELECT source, COUNT(*) AS backups FROM backups WHERE state <> 'deleted' GROUP BY source) AS b
  ON r.source = b.source
LEFT JOIN (SELECT source, finished_at AS full_at FROM last_success WHERE kind = 'full') AS l ON r.source = l.source
ORDER BY r.rank, r.source

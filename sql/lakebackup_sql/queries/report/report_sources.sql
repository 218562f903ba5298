-- Each source at the instant :now_ms: its status (the view `status`), the worst first, its policy, how much there is,
-- and how many of its topics cannot be restored at all (`protected`). It is LATE when a run is due at :now_ms.
-- late_ms: for how long a run has been due; null: none is. Times in ms, but for those that end in `_at`.
SELECT
  r.source, r.source_kind, r.status,
  CASE WHEN r.due_ts <= :now_ms THEN :now_ms - r.due_ts END AS late_ms,
  r.damaged, r.unprotected, COALESCE(t.lost, 0) AS lost, r.backup_id, r.finished_at, r.duration_ms, r.restorable_ts,
  :now_ms - r.restorable_ts AS lag_ms,
  r.due_ts, r.verified_at, r.drilled_ts, r.drill_failures, r.failed_runs, r.failed_ts, r.failure, r.held_bytes,
  COALESCE(b.backups, 0) AS backups,
  COALESCE(t.topics, 0) AS topics,
  COALESCE(t.gone, 0) AS gone,
  l.full_at, p.source IS NOT NULL AS has_policy, p.full_schedule, p.incremental_schedule, p.window_days, p.redundancy,
  p.keep, p.time_zone, p.patterns, p.command
FROM (
  SELECT
    s.source, s.source_kind,
    CASE
      WHEN s.status IN ('DAMAGED', 'UNPROTECTED', 'FAILED') THEN s.status
      WHEN s.due_ts <= :now_ms OR (s.status = 'LATE' AND s.missed = 0) THEN 'LATE'
      WHEN s.verified_at IS NULL THEN 'UNVERIFIED'
      ELSE 'OK'
    END AS status,
    s.damaged, s.unprotected, s.backup_id, s.finished_at, s.duration_ms,
    COALESCE(UNIX_MILLIS(s.restorable_time), s.restorable_ts) AS restorable_ts,
    s.due_ts, s.verified_at, UNIX_MILLIS(s.last_drill) AS drilled_ts, s.drill_failures, s.failed_runs,
    UNIX_MILLIS(s.last_failure) AS failed_ts, s.failure, s.held_bytes
  FROM status AS s
) AS r
LEFT JOIN policies AS p ON r.source = p.source
LEFT JOIN (SELECT source, COUNT(*) AS backups FROM backups WHERE state <> 'deleted' GROUP BY source) AS b
  ON r.source = b.source
LEFT JOIN (SELECT source, finished_at AS full_at FROM last_success WHERE kind = 'full') AS l ON r.source = l.source
LEFT JOIN (
  SELECT
    source,
    COUNT(CASE WHEN present THEN 1 END) AS topics,
    COUNT(CASE WHEN NOT present THEN 1 END) AS gone,
    COUNT(CASE WHEN present AND restorable_ts IS NULL THEN 1 END) AS lost
  FROM protected
  GROUP BY source
) AS t ON r.source = t.source
ORDER BY
  CASE r.status
    WHEN 'DAMAGED' THEN 1 WHEN 'UNPROTECTED' THEN 2 WHEN 'FAILED' THEN 3 WHEN 'LATE' THEN 4 WHEN 'UNVERIFIED' THEN 5 ELSE 6
  END,
  r.source

-- 0fafad1ce34b6e5d backups clock due_runs last_success policies protected status
SELECT
  r.source,
  r.source_kind,
  r.status,
  CASE WHEN r.missed > 0 THEN (
    SELECT
      now_ms
    FROM clock
  ) - r.due_ts END AS late_ms,
  NOT x.source IS NULL AS unreadable,
  r.damaged,
  r.unprotected,
  r.future,
  r.lost,
  r.backup_id,
  r.finished_at,
  r.duration_ms,
  r.counted_ts AS restorable_ts,
  (
    SELECT
      now_ms
    FROM clock
  ) - r.counted_ts AS lag_ms,
  r.due_ts,
  r.verified_at,
  EPOCH_MS(r.last_drill) AS drilled_ts,
  r.drill_failures,
  r.drill_outcome,
  r.drill_backup_id,
  r.drill_failure,
  CASE
    WHEN (
      SELECT
        now_ms
      FROM clock
    ) >= r.drill_due_ts
    THEN (
      SELECT
        now_ms
      FROM clock
    ) - r.drill_due_ts
  END AS drill_late_ms,
  r.failed_runs,
  r.failed_run,
  EPOCH_MS(r.last_failure) AS failed_ts,
  r.failure,
  r.held_bytes,
  COALESCE(b.backups, 0) AS backups,
  r.topics,
  r.gone,
  l.full_at,
  NOT p.source IS NULL AS has_policy,
  p.full_schedule,
  p.incremental_schedule,
  p.window_days,
  p.redundancy,
  p.keep,
  p.time_zone,
  p.patterns,
  p.command
FROM (
  SELECT
    s.*,
    COALESCE(t.topics, 0) AS topics,
    COALESCE(t.gone, 0) AS gone,
    COALESCE(t.lost, 0) AS lost,
    CASE
      WHEN t.lost > 0
      THEN NULL
      WHEN t.topics > 0
      THEN t.all_ts
      ELSE COALESCE(EPOCH_MS(s.restorable_time), s.restorable_ts)
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
    GROUP BY
      source
  ) AS t
    ON s.source = t.source
) AS r
LEFT JOIN policies AS p
  ON r.source = p.source
LEFT JOIN (
  SELECT DISTINCT
    source
  FROM due_runs
  WHERE
    due_ts IS NULL
) AS x
  ON r.source = x.source
LEFT JOIN (
  SELECT
    source,
    COUNT(*) AS backups
  FROM backups
  WHERE
    state <> 'deleted'
  GROUP BY
    source
) AS b
  ON r.source = b.source
LEFT JOIN (
  SELECT
    source,
    finished_at AS full_at
  FROM last_success
  WHERE
    kind = 'full'
) AS l
  ON r.source = l.source
ORDER BY
  r.rank NULLS FIRST,
  r.source NULLS FIRST

-- 3282cef0b33620d3 backups clock compactions due_runs future_backups growth horizon log_tasks missed_runs policies raw_backups raw_checks raw_drills raw_failures rpo unprotected_topics unreached_logs unusable_backups
WITH newest AS (
  SELECT
    n.source,
    n.backup_id,
    n.base,
    n.link,
    n.bytes,
    n.finished_at - n.started_at AS duration_us,
    CASE WHEN v.backup_id IS NULL THEN n.finished_at END AS finished_at
  FROM (
    SELECT
      g.*,
      ROW_NUMBER() OVER (PARTITION BY g.source ORDER BY g.place DESC, g.number DESC) AS nth
    FROM backups AS g
    ANTI JOIN unreached_logs AS u
      ON g.backup_id = u.backup_id
    WHERE
      g.state = 'complete' AND g.intact
  ) AS n
  LEFT JOIN future_backups AS v
    ON n.backup_id = v.backup_id
  WHERE
    n.nth = 1
), looked_at AS (
  SELECT
    backup_id,
    MAX("at") AS "at"
  FROM raw_checks
  WHERE
    NOT mode IN ('keys', 'list') AND NOT backup_id IS NULL
  GROUP BY
    backup_id
), verified AS (
  SELECT
    n.source,
    MIN(l."at") AS "at"
  FROM newest AS n
  JOIN backups AS b
    ON n.source = b.source
    AND n.base = b.base
    AND b.link <= n.link
    AND n.link < b.unlinked
  LEFT JOIN looked_at AS l
    ON b.backup_id = l.backup_id
  GROUP BY
    n.source
  HAVING
    COUNT(*) = COUNT(l."at")
), drilled AS (
  SELECT
    g.source,
    g."at",
    g.predicted_ms,
    g.real_ms
  FROM (
    SELECT
      d.*,
      ROW_NUMBER() OVER (PARTITION BY d.source ORDER BY d."at" DESC) AS nth
    FROM raw_drills AS d
    WHERE
      d.outcome = 'ok'
  ) AS g
  WHERE
    g.nth = 1
), not_good AS (
  SELECT
    g.source,
    g.failures,
    g.outcome,
    b.backup_id,
    g.detail
  FROM (
    SELECT
      d.source,
      d.outcome,
      d.backup_id,
      d.detail,
      COUNT(*) OVER (PARTITION BY d.source) AS failures,
      ROW_NUMBER() OVER (PARTITION BY d.source ORDER BY d.outcome NULLS FIRST, d."at" DESC) AS nth
    FROM raw_drills AS d
    LEFT JOIN drilled AS e
      ON d.source = e.source
    WHERE
      d.outcome <> 'ok' AND d."at" > COALESCE(e."at", -1)
  ) AS g
  LEFT JOIN backups AS b
    ON g.backup_id = b.backup_id AND b.state = 'complete'
  WHERE
    g.nth = 1
), ended_well AS (
  SELECT
    b.source,
    'backup' AS run,
    MAX(b.finished_at) AS "at"
  FROM raw_backups AS b
  LEFT JOIN compactions AS c
    ON b.source = c.source AND b.place = c.place
  WHERE
    b.number = b.place
    AND (
      b.source_kind <> 'kafka' OR c.place IS NULL
    )
    AND b.finished_at <= (
      SELECT
        horizon_ms
      FROM horizon
    ) * 1000
  GROUP BY
    b.source
  UNION ALL
  SELECT
    source,
    'full' AS run,
    MAX(finished_at) AS "at"
  FROM raw_backups
  WHERE
    kind = 'full'
    AND finished_at <= (
      SELECT
        horizon_ms
      FROM horizon
    ) * 1000
  GROUP BY
    source
  UNION ALL
  SELECT
    source,
    run,
    MAX("at") AS "at"
  FROM raw_failures
  WHERE
    exit_code = 0 AND "at" <= (
      SELECT
        horizon_ms
      FROM horizon
    ) * 1000
  GROUP BY
    source,
    run
), failed AS (
  SELECT
    f.source,
    COUNT(*) AS failed_runs,
    MAX(f."at") AS failed_at,
    ARG_MAX(f.run, f."at") AS failed_run,
    ARG_MAX(COALESCE(NULLIF(f.message, ''), f.error), f."at") AS failure
  FROM raw_failures AS f
  LEFT JOIN ended_well AS e
    ON f.source = e.source
    AND CASE WHEN f.run IN ('follow', 'import') THEN 'backup' ELSE f.run END = e.run
  WHERE
    f.exit_code <> 0 AND f."at" > COALESCE(e."at", -1)
  GROUP BY
    f.source
), found AS (
  SELECT
    s.source,
    s.source_kind,
    n.backup_id,
    n.duration_us,
    n.finished_at,
    n.bytes,
    r.restorable_ts,
    r.restorable_time,
    r.lag_ms,
    m.due_ts,
    COALESCE(m.missed, 0) AS missed,
    v."at" AS verified_at,
    COALESCE(u.damaged, 0) AS damaged,
    COALESCE(t.topics, 0) AS unprotected,
    COALESCE(g.held_bytes, 0) AS held_bytes,
    COALESCE(k.state = 'paused' AND NOT k.detail IS NULL, FALSE) AS paused,
    NOT x.source IS NULL AS unreadable,
    e."at" AS drilled_at,
    e.predicted_ms AS drill_predicted_ms,
    e.real_ms AS drill_real_ms,
    i.due_ts AS drill_due_ts,
    COALESCE(h.failures, 0) AS drill_failures,
    h.outcome AS drill_outcome,
    h.backup_id AS drill_backup_id,
    h.detail AS drill_failure,
    COALESCE(w.failed_runs, 0) AS failed_runs,
    w.failed_run,
    w.failed_at,
    w.failure,
    COALESCE(j.future, 0) AS future,
    j.future_id
  FROM (
    SELECT
      source,
      MAX(source_kind) AS source_kind
    FROM (
      SELECT
        source,
        source_kind
      FROM raw_backups
      UNION ALL
      SELECT
        source,
        TRY_CAST(NULL AS TEXT) AS source_kind
      FROM policies
      UNION ALL
      SELECT
        source,
        'changes' AS source_kind
      FROM log_tasks
      WHERE
        state <> 'stopped'
    ) AS every
    GROUP BY
      source
  ) AS s
  LEFT JOIN newest AS n
    ON s.source = n.source
  LEFT JOIN verified AS v
    ON s.source = v.source
  LEFT JOIN log_tasks AS k
    ON s.source = k.source
  LEFT JOIN (
    SELECT
      source,
      MIN(restorable_ts) AS restorable_ts,
      MIN(restorable_time) AS restorable_time,
      MAX(lag_ms) AS lag_ms
    FROM rpo
    WHERE
      present
    GROUP BY
      source
    HAVING
      COUNT(*) = COUNT(restorable_ts)
  ) AS r
    ON s.source = r.source
  LEFT JOIN (
    SELECT
      source,
      MIN(due_ts) AS due_ts,
      CAST(SUM(missed) AS BIGINT) AS missed
    FROM missed_runs
    GROUP BY
      source
  ) AS m
    ON s.source = m.source
  LEFT JOIN (
    SELECT
      source,
      COUNT(DISTINCT backup_id) AS damaged
    FROM unusable_backups
    WHERE
      reason IN ('missing', 'changed', 'damaged', 'trial')
    GROUP BY
      source
  ) AS u
    ON s.source = u.source
  LEFT JOIN (
    SELECT
      source,
      COUNT(*) AS topics
    FROM unprotected_topics
    GROUP BY
      source
  ) AS t
    ON s.source = t.source
  LEFT JOIN (
    SELECT
      source,
      ARG_MAX(held_bytes, day) AS held_bytes
    FROM growth
    GROUP BY
      source
  ) AS g
    ON s.source = g.source
  LEFT JOIN drilled AS e
    ON s.source = e.source
  LEFT JOIN (
    SELECT
      source,
      due_ts
    FROM due_runs
    WHERE
      run = 'drill'
  ) AS i
    ON s.source = i.source
  LEFT JOIN (
    SELECT DISTINCT
      source
    FROM due_runs
    WHERE
      due_ts IS NULL
  ) AS x
    ON s.source = x.source
  LEFT JOIN not_good AS h
    ON s.source = h.source
  LEFT JOIN failed AS w
    ON s.source = w.source
  LEFT JOIN (
    SELECT
      source,
      COUNT(*) AS future,
      ARG_MAX(backup_id, number) AS future_id
    FROM future_backups
    GROUP BY
      source
  ) AS j
    ON s.source = j.source
), ranked AS (
  SELECT
    f.*,
    CASE
      WHEN f.damaged > 0 OR f.drill_outcome = 'different'
      THEN 1
      WHEN f.backup_id IS NULL
      THEN 2
      WHEN f.failed_runs > 0 OR f.drill_outcome = 'failed'
      THEN 3
      WHEN f.missed > 0 OR f.unreadable OR f.paused
      THEN 4
      WHEN f.future > 0
      THEN 5
      WHEN f.unprotected > 0
      THEN 6
      WHEN f.verified_at IS NULL
      THEN 7
      ELSE 8
    END AS rank
  FROM found AS f
)
SELECT
  source,
  source_kind,
  CASE rank
    WHEN 1
    THEN 'DAMAGED'
    WHEN 2
    THEN 'UNPROTECTED'
    WHEN 3
    THEN 'FAILED'
    WHEN 4
    THEN 'LATE'
    WHEN 5
    THEN 'FUTURE'
    WHEN 6
    THEN 'UNPROTECTED'
    WHEN 7
    THEN 'UNVERIFIED'
    ELSE 'OK'
  END AS status,
  rank,
  NULLIF(
    CONCAT_WS(
      '; ',
      CASE WHEN damaged > 0 THEN 'backups with faults: ' || TRY_CAST(damaged AS TEXT) END,
      CASE
        WHEN drill_outcome = 'different'
        THEN CONCAT_WS(': ', 'a drill found a difference', drill_failure)
      END,
      CASE WHEN backup_id IS NULL THEN 'nothing can be restored' END,
      CASE
        WHEN failed_runs > 0
        THEN 'failed runs: ' || TRY_CAST(failed_runs AS TEXT) || ', the last: ' || failed_run || ': ' || failure
      END,
      CASE
        WHEN drill_outcome = 'failed'
        THEN CONCAT_WS(': ', 'the last drill failed', drill_failure)
      END,
      CASE WHEN missed > 0 THEN 'missed runs: ' || TRY_CAST(missed AS TEXT) END,
      CASE
        WHEN unreadable
        THEN 'a schedule of its policy cannot be read: lakebackup due'
      END,
      CASE WHEN paused THEN 'its log task paused itself' END,
      CASE
        WHEN future > 0
        THEN 'backups from the future: ' || TRY_CAST(future AS TEXT) || ', the last: ' || future_id || ' (lakebackup prune --future)'
      END,
      CASE
        WHEN unprotected > 0
        THEN 'topics without a backup: ' || TRY_CAST(unprotected AS TEXT)
      END,
      CASE WHEN NOT backup_id IS NULL AND verified_at IS NULL THEN 'never verified' END
    ),
    ''
  ) AS detail,
  backup_id,
  finished_at,
  TIMESTAMP_MICROS(finished_at) AS finished_time,
  TRY_CAST(FLOOR(duration_us / NULLIF(1000, 0)) AS BIGINT) AS duration_ms,
  bytes,
  restorable_ts,
  restorable_time,
  lag_ms,
  due_ts,
  TIMESTAMP_MILLIS(due_ts) AS due_time,
  missed,
  verified_at,
  TIMESTAMP_MICROS(verified_at) AS verified_time,
  damaged,
  unprotected,
  future,
  held_bytes,
  TIMESTAMP_MICROS(drilled_at) AS last_drill,
  (
    SELECT
      now_ms
    FROM clock
  ) - drilled_at // 1000 AS drill_age_ms,
  drill_predicted_ms,
  drill_real_ms,
  drill_due_ts,
  TIMESTAMP_MILLIS(drill_due_ts) AS drill_due_time,
  drill_failures,
  drill_outcome,
  drill_backup_id,
  drill_failure,
  failed_runs,
  failed_run,
  TIMESTAMP_MICROS(failed_at) AS last_failure,
  failure
FROM ranked

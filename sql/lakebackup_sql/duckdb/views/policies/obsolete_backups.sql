-- db69e93c64950913 backups chain_points faults future_backups holds own_kinds policies pruned_backups raw_backups raw_queue_points raw_queue_restores raw_scopes unusable_backups
WITH broken AS (
  SELECT DISTINCT
    backup_id
  FROM faults
  WHERE
    mode <> 'keys'
), candidates AS (
  SELECT
    b.backup_id,
    m.backup_id AS merge_id,
    m.number
  FROM backups AS m
  JOIN backups AS l
    ON m.source = l.source AND m.place = l.place AND l.number < m.number
  JOIN backups AS b
    ON l.source = b.source
    AND l.base = b.base
    AND b.link <= l.link
    AND l.link < b.unlinked
    AND b.place > COALESCE(m.parent_place, 0)
  ANTI JOIN backups AS t
    ON b.source = t.source
    AND b.base = t.base
    AND t.number = t.place
    AND t.state IN ('complete', 'deleted')
    AND t.parent_place < b.place
    AND b.place < t.place
    AND t.place <= l.place
  WHERE
    m.number > m.place
    AND m.state = 'complete'
    AND m.intact
    AND NOT EXISTS(
      SELECT
        1
      FROM broken AS f
      WHERE
        f.backup_id = m.backup_id
    )
), merged AS (
  SELECT
    c.backup_id,
    ARG_MAX(c.merge_id, c.number) AS merged_into
  FROM (
    SELECT
      d.backup_id,
      d.merge_id,
      d.number
    FROM candidates AS d
    LEFT JOIN chain_points AS t
      ON d.backup_id = t.backup_id
    LEFT JOIN raw_scopes AS s
      ON d.merge_id = s.backup_id
      AND t.scope = s.scope
      AND t.epoch = s.epoch
      AND t.generation = s.generation
    GROUP BY
      d.backup_id,
      d.merge_id,
      d.number
    HAVING
      COUNT(t.scope) = COUNT(s.scope)
  ) AS c
  GROUP BY
    c.backup_id
), put_back AS (
  SELECT
    r.source,
    r.backup_id,
    r.full_id
  FROM (
    SELECT
      s.source,
      MAX(s."at") AS "at",
      ARG_MAX(s.backup_id, s."at") AS backup_id,
      ARG_MAX(s.full_id, s."at") AS full_id
    FROM raw_queue_restores AS s
    GROUP BY
      s.source
  ) AS r
  ANTI JOIN raw_backups AS n
    ON r.source = n.source
    AND r."at" < n.started_at
    AND n.state IN ('complete', 'deleted')
), known AS (
  SELECT
    b.backup_id,
    b.source,
    b.number,
    b.kind,
    b.level,
    b.base,
    b.parent,
    b.place,
    b.parent_place,
    b.link,
    b.unlinked,
    b.state,
    b.end_ts,
    b.end_time,
    b.finished_at,
    b.files,
    b.bytes,
    g.merged_into,
    NOT y.backup_id IS NULL AS pruned,
    e.full_id AS engine_full,
    NOT r.source IS NULL AS restored,
    NOT v.backup_id IS NULL AS future,
    NOT h.backup_id IS NULL AND b.state <> 'deleted' AS held,
    b.kind = 'log' AND o.source_kind IS NULL AS is_log,
    b.state = 'complete'
    AND b.intact
    AND f.backup_id IS NULL
    AND g.backup_id IS NULL
    AND y.backup_id IS NULL
    AND v.backup_id IS NULL
    AND NOT (
      b.kind = 'log' AND o.source_kind IS NULL
    ) AS usable,
    CASE
      WHEN b.ts_domain = 'ms'
      THEN b.end_ts
      ELSE TRY_CAST(FLOOR(b.finished_at / NULLIF(1000, 0)) AS BIGINT)
    END AS ended_ms,
    MIN(b.place) OVER (PARTITION BY b.source, b.base) AS base_place,
    p.window_days,
    p.window_from_ts,
    p.redundancy,
    p.min_redundancy,
    p.keep_last,
    p.keep_hourly,
    p.keep_daily,
    p.keep_weekly,
    p.keep_monthly,
    p.keep_yearly,
    p.keep_differentials,
    COALESCE(NULLIF(p.time_zone, ''), 'UTC') AS time_zone,
    NOT COALESCE(p.keep_last, p.keep_hourly, p.keep_daily, p.keep_weekly, p.keep_monthly, p.keep_yearly) IS NULL AS has_rules
  FROM backups AS b
  LEFT JOIN own_kinds AS o
    ON b.source_kind = o.source_kind
  LEFT JOIN merged AS g
    ON b.backup_id = g.backup_id
  LEFT JOIN pruned_backups AS y
    ON b.backup_id = y.backup_id
  LEFT JOIN (
    SELECT
      backup_id
    FROM broken
    UNION
    SELECT
      backup_id
    FROM unusable_backups
    WHERE
      reason IN ('chain', 'missing', 'changed', 'damaged')
  ) AS f
    ON b.backup_id = f.backup_id
  LEFT JOIN future_backups AS v
    ON b.backup_id = v.backup_id
  LEFT JOIN holds AS h
    ON b.backup_id = h.backup_id
  LEFT JOIN policies AS p
    ON b.source = p.source
  LEFT JOIN (
    SELECT
      q.snapshot_id,
      ARG_MAX(f.backup_id, f.number) AS full_id
    FROM raw_queue_points AS q
    JOIN raw_backups AS f
      ON q.backup_id = f.backup_id
    WHERE
      f.state IN ('complete', 'unconfirmed')
    GROUP BY
      q.snapshot_id
  ) AS e
    ON b.backup_id = e.snapshot_id
  LEFT JOIN put_back AS r
    ON b.source = r.source
    AND (
      b.backup_id = r.backup_id OR b.backup_id = r.full_id
    )
), ranked AS (
  SELECT
    k.*,
    k.usable AND k.parent_place IS NULL AS is_full,
    k.usable AND (
      k.parent_place IS NULL OR k.parent_place = k.base_place
    ) AS is_first,
    k.usable AND k.ended_ms <= k.window_from_ts AS before_window,
    ROW_NUMBER() OVER (
      PARTITION BY k.source, k.usable AND k.parent_place IS NULL
      ORDER BY k.place DESC, k.number DESC
    ) AS nth_full,
    ROW_NUMBER() OVER (
      PARTITION BY k.source, k.usable AND (
        k.parent_place IS NULL OR k.parent_place = k.base_place
      )
      ORDER BY k.place DESC, k.number DESC
    ) AS nth_first,
    ROW_NUMBER() OVER (
      PARTITION BY k.source, k.usable AND COALESCE(k.ended_ms <= k.window_from_ts, FALSE)
      ORDER BY k.place DESC, k.number DESC
    ) AS nth_before
  FROM known AS k
), timed AS (
  SELECT
    k.*,
    EPOCH_MS(
      TRY_CAST(TRY_CAST(TIMESTAMP_MILLIS(k.ended_ms) AS TIMESTAMP) AT TIME ZONE 'UTC' AT TIME ZONE k.time_zone AS TIMESTAMPTZ)
    ) AS local_ms,
    ROW_NUMBER() OVER (PARTITION BY k.source ORDER BY k.place DESC, k.number DESC) AS nth
  FROM known AS k
  WHERE
    k.usable AND k.has_rules
), periods AS (
  SELECT
    t.backup_id,
    t.source,
    t.nth,
    1 AS ordinal,
    'last' AS rule,
    t.keep_last AS keep,
    -t.nth AS period
  FROM timed AS t
  UNION ALL
  SELECT
    t.backup_id,
    t.source,
    t.nth,
    2,
    'hourly',
    t.keep_hourly,
    TRY_CAST(FLOOR(t.local_ms / NULLIF(3600000, 0)) AS BIGINT) * 3600000 - (
      t.local_ms - t.ended_ms
    )
  FROM timed AS t
  UNION ALL
  SELECT
    t.backup_id,
    t.source,
    t.nth,
    3,
    'daily',
    t.keep_daily,
    TRY_CAST(FLOOR(t.local_ms / NULLIF(86400000, 0)) AS BIGINT)
  FROM timed AS t
  UNION ALL
  SELECT
    t.backup_id,
    t.source,
    t.nth,
    4,
    'weekly',
    t.keep_weekly,
    TRY_CAST(FLOOR(
      (
        TRY_CAST(FLOOR(t.local_ms / NULLIF(86400000, 0)) AS BIGINT) + 3
      ) / NULLIF(7, 0)
    ) AS BIGINT)
  FROM timed AS t
  UNION ALL
  SELECT
    t.backup_id,
    t.source,
    t.nth,
    5,
    'monthly',
    t.keep_monthly,
    YEAR(CAST(TIMESTAMP_MILLIS(t.local_ms) AS DATE)) * 12 + MONTH(CAST(TIMESTAMP_MILLIS(t.local_ms) AS DATE))
  FROM timed AS t
  UNION ALL
  SELECT
    t.backup_id,
    t.source,
    t.nth,
    6,
    'yearly',
    t.keep_yearly,
    YEAR(CAST(TIMESTAMP_MILLIS(t.local_ms) AS DATE))
  FROM timed AS t
), ruled AS (
  SELECT
    n.backup_id,
    ARG_MIN(n.rule, n.ordinal) AS rule
  FROM (
    SELECT
      p.*,
      ROW_NUMBER() OVER (PARTITION BY p.source, p.rule, p.period ORDER BY p.nth NULLS FIRST) AS nth_in_period,
      DENSE_RANK() OVER (PARTITION BY p.source, p.rule ORDER BY p.period DESC) AS nth_period
    FROM periods AS p
    WHERE
      NOT p.keep IS NULL
  ) AS n
  WHERE
    n.nth_in_period = 1 AND n.nth_period <= n.keep
  GROUP BY
    n.backup_id
), limited AS (
  SELECT
    r.*,
    MAX(CASE WHEN r.is_full AND r.before_window THEN r.place END) OVER (PARTITION BY r.source) AS window_place,
    MAX(CASE WHEN r.is_full AND r.nth_full = r.redundancy THEN r.place END) OVER (PARTITION BY r.source) AS redundancy_place,
    MAX(CASE WHEN r.held THEN r.unlinked END) OVER (
      PARTITION BY r.source, r.base
      ORDER BY r.link NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS held_until,
    ARG_MAX(CASE WHEN r.is_first THEN r.nth_first END, CASE WHEN r.is_first THEN r.link END) OVER (
      PARTITION BY r.source, r.base
      ORDER BY r.link NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS of_first,
    u.rule
  FROM ranked AS r
  LEFT JOIN ruled AS u
    ON r.backup_id = u.backup_id
), judged AS (
  SELECT
    l.*,
    CASE
      WHEN l.state = 'deleted'
      THEN NULL
      WHEN l.held
      THEN 'held'
      WHEN l.state = 'unconfirmed'
      THEN 'unconfirmed'
      WHEN l.future AND l.state = 'complete' AND l.merged_into IS NULL AND NOT l.pruned
      THEN 'future'
      WHEN NOT l.engine_full IS NULL
      THEN 'needed'
      WHEN l.restored AND l.state = 'complete'
      THEN 'restored'
      WHEN l.state = 'out_of_sync' OR NOT l.merged_into IS NULL OR l.pruned
      THEN NULL
      WHEN l.window_days IS NULL
      AND l.redundancy IS NULL
      AND l.keep_differentials IS NULL
      AND NOT l.has_rules
      THEN 'no_limit'
      WHEN l.is_log
      THEN NULL
      WHEN NOT l.window_days IS NULL
      AND (
        l.window_place IS NULL
        OR l.ended_ms > l.window_from_ts
        OR (
          l.before_window AND l.nth_before = 1
        )
        OR (
          l.is_full AND l.place = l.window_place
        )
      )
      THEN 'window'
      WHEN (
        NOT l.redundancy IS NULL
        OR (
          NOT l.keep_differentials IS NULL AND l.window_days IS NULL AND NOT l.has_rules
        )
      )
      AND l.place >= COALESCE(l.redundancy_place, 0)
      AND (
        l.is_full OR COALESCE(l.of_first <= l.keep_differentials, TRUE)
      )
      THEN 'redundancy'
      WHEN NOT l.rule IS NULL
      THEN l.rule
      WHEN l.is_full AND l.nth_full <= l.min_redundancy
      THEN 'minimum'
      WHEN l.link < l.held_until
      THEN 'inherited'
    END AS stays
  FROM limited AS l
), bound AS (
  SELECT
    j.*,
    MIN(CASE WHEN NOT j.stays IS NULL THEN j.link END) OVER later AS next_link,
    ARG_MIN(
      CASE WHEN NOT j.stays IS NULL THEN j.backup_id END,
      CASE WHEN NOT j.stays IS NULL THEN j.link END
    ) OVER later AS next_id
  FROM judged AS j
  WINDOW later AS (
    PARTITION BY j.source, j.base
    ORDER BY j.link DESC
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )
)
SELECT
  c.source,
  c.backup_id,
  c.number,
  c.kind,
  c.level,
  c.base,
  c.parent,
  c.place,
  c.link,
  c.state,
  c.end_ts,
  c.end_time,
  c.files,
  c.bytes,
  CASE
    WHEN c.state = 'deleted'
    THEN 'DELETED'
    WHEN c.stays = 'held'
    THEN 'KEEP'
    WHEN NOT c.stays IS NULL OR c.needed
    THEN 'VALID'
    ELSE 'OBSOLETE'
  END AS status,
  CASE
    WHEN c.state = 'deleted'
    THEN 'deleted'
    WHEN NOT c.stays IS NULL
    THEN c.stays
    WHEN c.needed
    THEN 'needed'
    WHEN c.state = 'out_of_sync'
    THEN 'out_of_sync'
    WHEN NOT c.merged_into IS NULL
    THEN 'merged'
    WHEN c.pruned
    THEN 'pruned'
    WHEN c.has_rules
    THEN 'rules'
    WHEN c.window_days IS NULL
    THEN 'redundancy'
    WHEN NOT c.redundancy IS NULL
    THEN 'both'
    WHEN c.base_place >= c.window_place
    THEN 'superseded'
    ELSE 'window'
  END AS reason,
  CASE
    WHEN c.stays = 'needed'
    THEN c.engine_full
    WHEN c.state = 'deleted' OR NOT c.stays IS NULL
    THEN NULL
    WHEN c.needed
    THEN c.next_id
    ELSE c.merged_into
  END AS because_of
FROM (
  SELECT
    n.*,
    CASE
      WHEN n.is_log
      THEN COALESCE(
        n.end_ts > MIN(
          CASE
            WHEN NOT n.is_log AND (
              NOT n.stays IS NULL OR n.depended
            )
            THEN n.end_ts
          END
        ) OVER (PARTITION BY n.source),
        TRUE
      )
      ELSE n.depended
    END AS needed
  FROM (
    SELECT
      b.*,
      COALESCE(b.next_link < b.unlinked, FALSE) AS depended
    FROM bound AS b
  ) AS n
) AS c

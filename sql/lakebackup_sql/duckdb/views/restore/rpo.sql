-- fe59757579555279 chain_points clock compactions coverage raw_backups unusable_backups
WITH steps AS (
  SELECT
    c.source,
    c.scope,
    c.epoch,
    CASE WHEN e.step = 1 THEN COALESCE(c.from_ts, -1) ELSE c.to_ts END AS ts,
    SUM(e.step) AS step
  FROM coverage AS c
  CROSS JOIN (
    SELECT
      1 AS step
    UNION ALL
    SELECT
      -1 AS step
  ) AS e
  WHERE
    c.status = 'restorable'
  GROUP BY
    c.source,
    c.scope,
    c.epoch,
    CASE WHEN e.step = 1 THEN COALESCE(c.from_ts, -1) ELSE c.to_ts END
), levels AS (
  SELECT
    s.source,
    s.scope,
    s.epoch,
    SUM(s.step) OVER (
      PARTITION BY s.source, s.scope, s.epoch
      ORDER BY s.ts NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS regions,
    LEAD(s.ts) OVER (PARTITION BY s.source, s.scope, s.epoch ORDER BY s.ts NULLS FIRST) AS to_ts
  FROM steps AS s
)
SELECT
  t.source,
  t.scope,
  t.epoch,
  t.backup_id,
  t.present,
  l.to_ts AS restorable_ts,
  TIMESTAMP_MILLIS(l.to_ts // CASE t.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END) AS restorable_time,
  CASE t.ts_domain
    WHEN 'ms'
    THEN (
      SELECT
        now_ms
      FROM clock
    ) - l.to_ts
    WHEN 'tso'
    THEN (
      SELECT
        now_ms
      FROM clock
    ) - l.to_ts // 262144
  END AS lag_ms,
  CASE WHEN t.covers_to >= 0 THEN t.covers_to END AS covered_ts,
  CASE WHEN t.covers_to >= 0 THEN t.covers_to_time END AS covered_time
FROM (
  SELECT
    p.*,
    (
      p.scope = '-' AND p.epoch = '-'
    )
    OR p.place >= MAX(CASE WHEN k.place IS NULL THEN p.place END) OVER (PARTITION BY p.source) AS present
  FROM chain_points AS p
  LEFT JOIN compactions AS k
    ON p.source = k.source AND p.place = k.place
) AS t
LEFT JOIN (
  SELECT
    v.source,
    v.scope,
    v.epoch,
    MAX(v.to_ts) AS to_ts
  FROM levels AS v
  JOIN chain_points AS p
    ON v.source = p.source
    AND v.scope = p.scope
    AND v.epoch = p.epoch
    AND p.newest
    AND v.regions >= p.regions
  GROUP BY
    v.source,
    v.scope,
    v.epoch
  UNION ALL
  SELECT
    p.source,
    p.scope,
    p.epoch,
    MAX(p.covers_to) AS to_ts
  FROM chain_points AS p
  JOIN raw_backups AS b
    ON p.backup_id = b.backup_id
  ANTI JOIN (
    SELECT
      backup_id
    FROM unusable_backups
    WHERE
      reason IN ('missing', 'changed', 'damaged')
  ) AS u
    ON p.backup_id = u.backup_id
  WHERE
    b.source_kind = 'snapshot' AND p.covers_to >= 0
  GROUP BY
    p.source,
    p.scope,
    p.epoch
) AS l
  ON t.source = l.source AND t.scope = l.scope AND t.epoch = l.epoch
WHERE
  t.newest

-- 6fa7ebb48ff8364a backups needs restore_points restore_spans
WITH spans AS (
  SELECT
    *
  FROM restore_spans
), paths AS (
  SELECT
    t.source,
    t.scope,
    t.epoch,
    t.ts_domain,
    t.covers_from,
    t.covers_to,
    t.backup_id AS target_id,
    t.backup_id AS base_id,
    TRY_CAST(NULL AS BIGINT) AS base_ts,
    TRY_CAST(NULL AS BIGINT) AS log_ts
  FROM restore_points AS t
  WHERE
    NOT (
      t.scope = '-' AND t.epoch = '-'
    )
  UNION ALL
  SELECT
    s.source,
    '-' AS scope,
    '-' AS epoch,
    s.ts_domain,
    s.covers_from,
    s.base_ts AS covers_to,
    s.base_id AS target_id,
    s.base_id,
    s.base_ts,
    TRY_CAST(NULL AS BIGINT) AS log_ts
  FROM spans AS s
  WHERE
    s.covers_from < s.base_ts
  UNION ALL
  SELECT
    s.source,
    '-' AS scope,
    '-' AS epoch,
    s.ts_domain,
    GREATEST(
      s.base_ts,
      t.covers_from,
      COALESCE(
        MAX(t.covers_to) OVER (
          PARTITION BY s.source, s.base_ts
          ORDER BY t.covers_to NULLS FIRST, t.number NULLS FIRST
          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ),
        s.base_ts
      )
    ) AS covers_from,
    LEAST(t.covers_to, s.covers_to) AS covers_to,
    t.backup_id AS target_id,
    s.base_id,
    s.base_ts,
    t.covers_to AS log_ts
  FROM spans AS s
  JOIN restore_points AS t
    ON s.source = t.source AND t.covers_to > s.base_ts AND t.covers_from < s.covers_to
  WHERE
    t.scope = '-' AND t.epoch = '-' AND t.kind = 'log'
), steps AS (
  SELECT
    p.*,
    n.needed_id AS backup_id,
    0 AS after,
    n.link AS nth
  FROM paths AS p
  JOIN needs AS n
    ON p.base_id = n.backup_id
  WHERE
    p.covers_from < p.covers_to
  UNION ALL
  SELECT
    p.*,
    l.backup_id,
    1 AS after,
    l.covers_to AS nth
  FROM paths AS p
  JOIN restore_points AS l
    ON p.source = l.source AND p.base_ts < l.covers_to AND l.covers_to <= p.log_ts
  WHERE
    p.covers_from < p.covers_to AND l.scope = '-' AND l.epoch = '-' AND l.kind = 'log'
)
SELECT
  s.source,
  s.scope,
  s.epoch,
  s.covers_from,
  s.covers_to,
  TIMESTAMP_MILLIS(s.covers_from // CASE s.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END) AS covers_from_time,
  TIMESTAMP_MILLIS(s.covers_to // CASE s.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END) AS covers_to_time,
  s.target_id,
  ROW_NUMBER() OVER (
    PARTITION BY s.source, s.scope, s.epoch, s.covers_from, s.covers_to, s.target_id
    ORDER BY s.after NULLS FIRST, s.nth NULLS FIRST
  ) AS step,
  COUNT(*) OVER (PARTITION BY s.source, s.scope, s.epoch, s.covers_from, s.covers_to, s.target_id) AS backups,
  b.backup_id,
  b.number,
  b.kind,
  b.level,
  b.start_time,
  b.end_time,
  b.destination,
  b.files,
  b.bytes,
  b.entries,
  b.note
FROM steps AS s
JOIN backups AS b
  ON s.backup_id = b.backup_id

-- 6f55fce03282e152 backups needs restore_points restore_spans
WITH spans AS (
  SELECT
    *
  FROM restore_spans
), logs AS (
  SELECT
    l.source,
    l.backup_id,
    l.covers_to,
    LEAST(l.covers_from, l.covers_to - 1) AS begin_ts,
    ROW_NUMBER() OVER (
      PARTITION BY l.source
      ORDER BY l.covers_to NULLS FIRST, l.covers_from NULLS FIRST, l.number NULLS FIRST
    ) AS nth
  FROM (
    SELECT
      t.source,
      t.backup_id,
      t.number,
      t.covers_from,
      t.covers_to,
      MAX(t.covers_to) OVER (
        PARTITION BY t.source
        ORDER BY t.covers_from NULLS FIRST
        RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS earlier_end_ts
    FROM restore_points AS t
    WHERE
      t.scope = '-' AND t.epoch = '-' AND t.kind = 'log'
  ) AS l
  WHERE
    COALESCE(l.earlier_end_ts <= l.covers_to, TRUE)
), targets AS (
  SELECT
    s.source,
    s.ts_domain,
    s.base_id,
    s.base_ts,
    s.covers_to AS span_ts,
    l.backup_id,
    l.covers_to,
    l.nth,
    GREATEST(
      s.base_ts,
      l.begin_ts,
      COALESCE(
        MAX(l.covers_to) OVER (
          PARTITION BY s.source, s.base_ts
          ORDER BY l.covers_to NULLS FIRST
          RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ),
        s.base_ts
      )
    ) AS covers_from
  FROM spans AS s
  JOIN logs AS l
    ON s.source = l.source AND l.covers_to > s.base_ts AND l.begin_ts < s.covers_to
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
    TRY_CAST(NULL AS BIGINT) AS last_nth
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
    TRY_CAST(NULL AS BIGINT) AS last_nth
  FROM spans AS s
  WHERE
    s.covers_from < s.base_ts
  UNION ALL
  SELECT
    t.source,
    '-' AS scope,
    '-' AS epoch,
    t.ts_domain,
    t.covers_from,
    LEAST(
      t.span_ts,
      t.covers_to,
      COALESCE(
        LEAD(t.covers_from) OVER (PARTITION BY t.source, t.base_ts, t.covers_to ORDER BY t.nth NULLS FIRST),
        t.covers_to
      )
    ) AS covers_to,
    t.backup_id AS target_id,
    t.base_id,
    t.base_ts,
    t.nth AS last_nth
  FROM targets AS t
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
    l.nth
  FROM paths AS p
  JOIN logs AS l
    ON p.source = l.source AND l.nth <= p.last_nth AND p.base_ts < l.covers_to
  WHERE
    p.covers_from < p.covers_to
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

-- 97f6da5b0fb99aa9 raw_backups
WITH ordered AS (
  SELECT
    b.*,
    ROW_NUMBER() OVER chain AS link,
    COUNT(*) OVER (PARTITION BY b.source, b.base) + 1 AS beyond,
    b.state = 'complete' AND b.parent_place < LAG(b.place) OVER chain AS turns
  FROM raw_backups AS b
  WINDOW chain AS (PARTITION BY b.source, b.base ORDER BY b.place NULLS FIRST, b.number NULLS FIRST)
), replaced AS (
  SELECT
    o.backup_id,
    MIN(t.link) AS unlinked
  FROM ordered AS o
  JOIN ordered AS t
    ON o.source = t.source
    AND o.base = t.base
    AND o.link < t.link
    AND o.place > t.parent_place
  WHERE
    t.turns
  GROUP BY
    o.backup_id
), linked AS (
  SELECT
    o.*,
    COALESCE(r.unlinked, o.beyond) AS unlinked
  FROM ordered AS o
  LEFT JOIN replaced AS r
    ON o.backup_id = r.backup_id
), ends AS (
  SELECT
    source,
    base,
    unlinked,
    SUM(place - COALESCE(parent_place, 0)) AS span
  FROM linked
  WHERE
    state = 'complete' AND unlinked < beyond
  GROUP BY
    source,
    base,
    unlinked
), reached AS (
  SELECT
    l.*,
    SUM(
      CASE WHEN l.state = 'complete' THEN l.place - COALESCE(l.parent_place, 0) ELSE 0 END - COALESCE(e.span, 0)
    ) OVER (
      PARTITION BY l.source, l.base
      ORDER BY l.link NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS reach
  FROM linked AS l
  LEFT JOIN ends AS e
    ON l.source = e.source AND l.base = e.base AND l.link = e.unlinked
)
SELECT
  backup_id,
  number,
  source,
  source_kind,
  destination,
  kind,
  level,
  parent,
  base,
  chain_position,
  place,
  parent_place,
  branch,
  state,
  ts_domain,
  start_ts,
  end_ts,
  started_at,
  finished_at,
  files,
  bytes,
  entries,
  digest,
  isolation,
  codec,
  created_by,
  tool,
  note,
  runner,
  link,
  unlinked,
  state = 'complete' AND reach = place AS intact,
  TIMESTAMP_MILLIS(start_ts // CASE ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END) AS start_time,
  TIMESTAMP_MILLIS(end_ts // CASE ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END) AS end_time,
  TIMESTAMP_MICROS(started_at) AS started_time,
  TIMESTAMP_MICROS(finished_at) AS finished_time
FROM reached

-- f2adbd251c066edf files log_tables
SELECT
  t.table_id,
  t.db,
  t.name,
  t.action = 'drop' OR COALESCE(r.from_ts >= t.from_ts, FALSE) AS gone,
  t.covered_from AS whole_from,
  h.born_ts,
  COALESCE(w.min_ts < h.named_ts, FALSE) AS unnamed,
  COALESCE(r.from_ts > $start_ts, FALSE)
  OR (
    t.from_ts > $start_ts
    AND (
      t.action IN ('drop', 'rename') OR COALESCE(w.min_ts < h.named_ts, FALSE)
    )
  ) AS changed
FROM log_tables AS t
JOIN (
  SELECT
    n.table_id,
    MIN(n.from_ts) AS named_ts,
    MIN(CASE WHEN n.action IN ('create', 'truncate') THEN n.from_ts END) AS born_ts
  FROM log_tables AS n
  WHERE
    n.source = $source
  GROUP BY
    n.table_id
) AS h
  ON t.table_id = h.table_id
LEFT JOIN (
  SELECT
    n.replaces AS table_id,
    MAX(n.from_ts) AS from_ts
  FROM log_tables AS n
  WHERE
    n.source = $source AND n.from_ts <= $end_ts AND NOT n.replaces IS NULL
  GROUP BY
    n.replaces
) AS r
  ON t.table_id = r.table_id
LEFT JOIN (
  SELECT
    f.scope,
    MIN(f.min_ts) AS min_ts
  FROM files AS f
  WHERE
    f.source = $source
    AND f.format = 'log-arrow-1'
    AND f.role = 'data'
    AND f.cf = 'write'
  GROUP BY
    f.scope
) AS w
  ON w.scope = TRY_CAST(t.table_id AS TEXT)
WHERE
  t.source = $source
  AND t.from_ts <= $end_ts
  AND (
    t.to_ts IS NULL OR t.to_ts > $end_ts
  )
ORDER BY
  t.table_id NULLS FIRST

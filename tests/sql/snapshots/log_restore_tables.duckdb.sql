SELECT
  t.table_id,
  t.db,
  t.name,
  t.action = 'drop' OR NOT r.table_id IS NULL AS gone,
  t.covered_from AS whole_from,
  h.born_ts,
  COALESCE(r.from_ts > $start_ts, t.from_ts > $start_ts AND t.action IN ('drop', 'rename')) AS changed
FROM log_tables AS t
JOIN (
  SELECT
    n.table_id,
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
    MIN(n.from_ts) AS from_ts
  FROM log_tables AS n
  WHERE
    n.source = $source AND n.from_ts <= $end_ts AND NOT n.replaces IS NULL
  GROUP BY
    n.replaces
) AS r
  ON t.table_id = r.table_id
WHERE
  t.source = $source
  AND t.from_ts <= $end_ts
  AND (
    t.to_ts IS NULL OR t.to_ts > $end_ts
  )
ORDER BY
  t.table_id NULLS FIRST

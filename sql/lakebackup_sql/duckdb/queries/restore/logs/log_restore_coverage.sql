-- 919a8232affaa6f2 log_flushes
SELECT
  s.ts_domain,
  GREATEST(MIN(s.start_ts), MAX(s.low)) AS from_ts,
  MAX(s.end_ts) AS to_ts
FROM (
  SELECT
    l.*,
    SUM(CASE WHEN l.before >= l.start_ts THEN 0 ELSE 1 END) OVER (ORDER BY l.number NULLS FIRST) AS span
  FROM (
    SELECT
      b.number,
      b.ts_domain,
      b.start_ts,
      b.end_ts,
      COALESCE(b.floor_ts, 0) AS low,
      MAX(b.end_ts) OVER (ORDER BY b.number NULLS FIRST ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM log_flushes AS b
    WHERE
      b.source = $source AND NOT b.start_ts IS NULL
  ) AS l
) AS s
GROUP BY
  s.ts_domain,
  s.span
HAVING
  GREATEST(MIN(s.start_ts), MAX(s.low)) <= MAX(s.end_ts)
ORDER BY
  to_ts NULLS FIRST

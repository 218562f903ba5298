-- f3f369c579cfb5cb backups covered
WITH edges AS (
  SELECT
    e.source,
    b.first_ts,
    GREATEST(MAX(e.to_ts) - b.first_ts, 1) AS span
  FROM covered AS e
  JOIN (
    SELECT
      source,
      TRY_CAST(FLOOR(MIN(started_at) / NULLIF(1000, 0)) AS BIGINT) AS first_ts
    FROM backups
    WHERE
      state <> 'deleted'
    GROUP BY
      source
  ) AS b
    ON e.source = b.source
  GROUP BY
    e.source,
    b.first_ts
), clipped AS (
  SELECT
    c.source,
    c.scope,
    c.status,
    c.to_ts,
    GREATEST(COALESCE(c.from_ts, e.first_ts), e.first_ts) AS from_ts,
    e.span / NULLIF($steps, 0) AS step
  FROM covered AS c
  JOIN edges AS e
    ON c.source = e.source
  WHERE
    c.to_ts > e.first_ts
), reached AS (
  SELECT
    l.*,
    MAX(l.to_ts) OVER (
      PARTITION BY l.source, l.status
      ORDER BY l.from_ts NULLS FIRST, l.to_ts NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS before_ts
  FROM clipped AS l
), islands AS (
  SELECT
    r.*,
    SUM(CASE WHEN r.from_ts <= r.before_ts + r.step THEN 0 ELSE 1 END) OVER (
      PARTITION BY r.source, r.status
      ORDER BY r.from_ts NULLS FIRST, r.to_ts NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS island
  FROM reached AS r
)
SELECT
  source,
  status,
  MIN(from_ts) AS from_ts,
  MAX(to_ts) AS to_ts,
  COUNT(DISTINCT scope) AS scopes
FROM islands
GROUP BY
  source,
  status,
  island
ORDER BY
  source NULLS FIRST,
  from_ts NULLS FIRST,
  to_ts NULLS FIRST,
  status NULLS FIRST

-- `covered` as a picture needs it: for each source the :topics topics with most gaps, from its first backup on,
-- intervals that differ by less than one of :steps parts of the whole time taken together.
WITH edges AS (
  SELECT
    e.source, b.first_ts,
    GREATEST(MAX(e.to_ts) - b.first_ts, 1) AS span
  FROM covered AS e
  JOIN (
    SELECT source, CAST(FLOOR(MIN(started_at) / 1000) AS BIGINT) AS first_ts
    FROM backups
    WHERE state <> 'deleted'
    GROUP BY source
  ) AS b ON e.source = b.source
  GROUP BY e.source, b.first_ts
),
topics AS (
  SELECT
    source, scope,
    ROW_NUMBER() OVER (
      PARTITION BY source ORDER BY SUM(CASE WHEN status = 'gap' THEN 1 ELSE 0 END) DESC, scope
    ) AS place
  FROM covered
  GROUP BY source, scope
),
spans AS (
  SELECT
    c.source, c.scope, t.place, c.status, c.region,
    GREATEST(COALESCE(c.from_ts, e.first_ts), e.first_ts) AS from_ts,
    c.to_ts,
    FLOOR((GREATEST(COALESCE(c.from_ts, e.first_ts), e.first_ts) - e.first_ts) * :steps / e.span) AS from_step,
    FLOOR((c.to_ts - e.first_ts) * :steps / e.span) AS to_step
  FROM covered AS c
  JOIN topics AS t ON c.source = t.source AND c.scope = t.scope
  JOIN edges AS e ON c.source = e.source
  WHERE t.place <= :topics
    AND c.to_ts > e.first_ts
)
SELECT
  source, scope, status,
  MIN(from_ts) AS from_ts,
  MAX(to_ts) AS to_ts,
  COUNT(DISTINCT region) AS regions
FROM spans
GROUP BY source, scope, place, status, from_step, to_step
ORDER BY source, place, from_ts, to_ts, status

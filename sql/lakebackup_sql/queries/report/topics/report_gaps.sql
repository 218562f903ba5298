-- The :most newest intervals of `covered` that cannot be restored as they were, those of a topic's partitions that end
-- and begin alike together; `all_rows`: how many there are.
SELECT
  g.*,
  COUNT(*) OVER () AS all_rows
FROM (
  SELECT
    source, scope, status, reason, from_ts, to_ts,
    COUNT(*) AS regions,
    SUM(to_position - from_position) AS positions
  FROM covered
  WHERE status IN ('gap', 'fork', 'approximate')
  GROUP BY source, scope, status, reason, from_ts, to_ts
) AS g
ORDER BY g.to_ts DESC, g.source, g.scope, g.reason, g.from_ts
LIMIT :most

-- cbb7c72eaf4e5533 covered
SELECT
  g.*,
  COUNT(*) OVER () AS all_rows
FROM (
  SELECT
    source,
    scope,
    status,
    reason,
    from_ts,
    to_ts,
    COUNT(*) AS regions,
    SUM(to_position - from_position) AS positions
  FROM covered
  WHERE
    status IN ('gap', 'fork', 'approximate')
  GROUP BY
    source,
    scope,
    status,
    reason,
    from_ts,
    to_ts
) AS g
ORDER BY
  g.to_ts DESC,
  g.source NULLS FIRST,
  g.scope NULLS FIRST,
  g.reason NULLS FIRST,
  g.from_ts NULLS FIRST
LIMIT $most

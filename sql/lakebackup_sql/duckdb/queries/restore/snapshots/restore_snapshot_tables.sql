-- e97de68e8c5f21dc snapshot_selected
SELECT
  s.source,
  s.scope,
  COUNT(DISTINCT s.region) AS regions,
  MIN(s.region) AS region,
  COUNT(*) AS files,
  CAST(SUM(COALESCE(s.bytes, 0)) AS BIGINT) AS bytes,
  CAST(SUM(CASE WHEN s.stored THEN 0 ELSE 1 END) AS BIGINT) AS pruned,
  MIN(CASE WHEN NOT s.stored THEN s.target END) AS first_pruned,
  CAST(SUM(CASE WHEN s.sha256 IS NULL THEN 1 ELSE 0 END) AS BIGINT) AS unknown
FROM snapshot_selected AS s
GROUP BY
  s.source,
  s.scope
ORDER BY
  s.source NULLS FIRST,
  s.scope NULLS FIRST

SELECT DISTINCT
  s.region
FROM snapshot_selected AS s
ORDER BY
  s.region NULLS FIRST

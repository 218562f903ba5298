-- 7531e3de8ca6aba5 snapshot_selected
SELECT DISTINCT
  s.region
FROM snapshot_selected AS s
ORDER BY
  s.region NULLS FIRST

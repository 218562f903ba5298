-- 457a1e8c2205a6be snapshot_selected
SELECT
  s.target
FROM snapshot_selected AS s
ORDER BY
  CASE
    WHEN $fold
    THEN LOWER(REPLACE(s.target, '/', CHR(0)))
    ELSE REPLACE(s.target, '/', CHR(0))
  END NULLS FIRST,
  s.target NULLS FIRST

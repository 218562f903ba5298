-- 3423f71fa3c585e1 chosen
SELECT
  COUNT(*) AS rows_chosen
FROM chosen AS c

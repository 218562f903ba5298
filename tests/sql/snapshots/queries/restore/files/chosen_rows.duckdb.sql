SELECT
  COUNT(*) AS rows_chosen
FROM chosen AS c

-- 078b7142efe4b823 chosen
SELECT
  COUNT(*) AS rows_chosen,
  MIN(c.path) AS first_path,
  MAX(c.path) AS last_path
FROM chosen AS c

-- d69cafb3c2a3bbd8 given_rows
SELECT
  g.backup_id,
  g.path,
  MIN(g.row_file) AS row_file,
  MIN(g.row_number) AS row_number,
  COUNT(*) AS times
FROM given_rows AS g
GROUP BY
  g.backup_id,
  COALESCE(g.scope, 'files'),
  COALESCE(g.region, '0'),
  g.path
HAVING
  COUNT(*) > 1
ORDER BY
  row_file NULLS FIRST,
  row_number NULLS FIRST
LIMIT 20

-- Files that are given twice for one backup (relation given_rows).
SELECT
  g.backup_id, g.path,
  MIN(g.row_file) AS row_file,
  MIN(g.row_number) AS row_number,
  COUNT(*) AS times
FROM given_rows AS g
GROUP BY g.backup_id, COALESCE(g.scope, 'files'), COALESCE(g.region, '0'), g.path
HAVING COUNT(*) > 1
ORDER BY row_file, row_number
LIMIT 20

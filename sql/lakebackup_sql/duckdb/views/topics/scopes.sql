-- 706baa7dfb24134f raw_backups raw_scopes
SELECT
  s.*
FROM raw_scopes AS s
JOIN raw_backups AS b
  ON b.backup_id = s.backup_id
WHERE
  b.state IN ('complete', 'out_of_sync')

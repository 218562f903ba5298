-- 989d927a3a6a9588 raw_backups
SELECT
  b.*
FROM raw_backups AS b
ORDER BY
  b.source NULLS FIRST,
  b.number NULLS FIRST

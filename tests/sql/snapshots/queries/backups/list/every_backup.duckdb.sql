SELECT
  b.*
FROM raw_backups AS b
ORDER BY
  b.source NULLS FIRST,
  b.number NULLS FIRST

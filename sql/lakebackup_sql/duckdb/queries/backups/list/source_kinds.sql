-- e377e40f29984575 backups
SELECT DISTINCT
  b.source_kind
FROM backups AS b
WHERE
  b.source = $source
ORDER BY
  b.source_kind NULLS FIRST

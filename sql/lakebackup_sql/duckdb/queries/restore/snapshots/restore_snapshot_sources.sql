-- ee2e766a0548ec22 backups
SELECT DISTINCT
  b.source
FROM backups AS b
WHERE
  b.source_kind = 'snapshot' AND b.state = 'complete'
ORDER BY
  b.source NULLS FIRST

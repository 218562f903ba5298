-- 84fe6e8101a85f77 raw_backups
SELECT
  b.source,
  MAX(b.backup_id) AS backup_id
FROM raw_backups AS b
WHERE
  b.destination = $destination
GROUP BY
  b.source
ORDER BY
  b.source NULLS FIRST

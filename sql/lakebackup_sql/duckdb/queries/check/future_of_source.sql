-- c9260439392bcb54 future_backups
SELECT
  f.source,
  f.backup_id,
  EPOCH_MS(f.end_time) AS end_ms
FROM future_backups AS f
WHERE
  TRY_CAST($source AS TEXT) IS NULL OR f.source = $source
ORDER BY
  f.source NULLS FIRST,
  f.number NULLS FIRST

-- d82ec3234760dd6f backups
SELECT
  b.backup_id
FROM backups AS b
WHERE
  b.source = $source
  AND b.state = 'complete'
  AND b.intact
  AND (
    TRY_CAST($to_ts AS BIGINT) IS NULL OR b.end_ts <= TRY_CAST($to_ts AS BIGINT)
  )
ORDER BY
  b.end_ts DESC,
  b.place DESC,
  b.number DESC
LIMIT 1

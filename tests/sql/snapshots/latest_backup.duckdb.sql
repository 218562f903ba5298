SELECT
  *
FROM backups
WHERE
  source = $source
  AND state = 'complete'
  AND intact
  AND (
    TRY_CAST($level AS INT) IS NULL OR level <= $level
  )
ORDER BY
  place DESC,
  number DESC
LIMIT 1

-- b5967f242e6b3dd3 backups
SELECT
  b.backup_id
FROM backups AS b
WHERE
  b.source = $source
  AND b.state = 'complete'
  AND b.chained
  AND (
    TRY_CAST($to_ts AS BIGINT) IS NULL OR b.end_ts <= TRY_CAST($to_ts AS BIGINT)
  )
ORDER BY
  b.end_ts DESC,
  b.place DESC,
  b.number DESC
LIMIT 1

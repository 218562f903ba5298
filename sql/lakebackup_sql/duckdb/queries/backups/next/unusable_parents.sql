-- 2b17e113d8d86ff8 backups
SELECT
  backup_id,
  number,
  end_ts,
  CASE WHEN state = 'complete' THEN 'chain' ELSE state END AS reason
FROM backups
WHERE
  source = $source
  AND NOT intact
  AND state <> 'deleted'
  AND (
    TRY_CAST($place AS BIGINT) IS NULL OR place > $place
  )
ORDER BY
  place DESC,
  number DESC
LIMIT 100

-- d6ef4b92bc78d57f backups
SELECT
  backup_id,
  number,
  end_ts,
  CASE WHEN state <> 'complete' THEN state WHEN chained THEN 'damaged' ELSE 'chain' END AS reason
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

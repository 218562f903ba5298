-- 44dcf04683020fbb backups
SELECT
  b.backup_id,
  b.end_ts
FROM backups AS b
WHERE
  b.source = $source
  AND b.number > $number
  AND (
    b.state = 'unconfirmed' OR (
      b.state = 'complete' AND NOT b.intact
    )
  )
ORDER BY
  b.number DESC
LIMIT 3

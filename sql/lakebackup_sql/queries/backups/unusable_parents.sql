-- The backups of :source that no other can go on from, latest first: those behind the one at :place (null: all).
SELECT
  backup_id, number, end_ts,
  CASE WHEN state = 'complete' THEN 'chain' ELSE state END AS reason
FROM backups
WHERE source = :source
  AND NOT intact
  AND state <> 'deleted'
  AND (CAST(:place AS BIGINT) IS NULL OR place > :place)
ORDER BY place DESC, number DESC
LIMIT 100

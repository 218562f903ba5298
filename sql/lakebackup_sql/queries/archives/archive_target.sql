-- The backup of a source that an archive is written from, or that is restored: the newest that can be restored, of
-- those that ended at :to_ts or before (null: any).
SELECT b.backup_id
FROM backups AS b
WHERE b.source = :source
  AND b.state = 'complete'
  AND b.chained
  AND (CAST(:to_ts AS BIGINT) IS NULL OR b.end_ts <= CAST(:to_ts AS BIGINT))
ORDER BY b.end_ts DESC, b.place DESC, b.number DESC
LIMIT 1

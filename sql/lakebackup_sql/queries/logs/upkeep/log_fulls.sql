-- The fulls of the change feed :source at or before :to_ts (null: all), the newest first.
-- held: a person keeps it
-- note: the gap that it spans; null: none
-- damaged: a file that was not whole when verify last looked; null: none
SELECT
  b.backup_id, b.number, b.ts_domain, b.end_ts, b.destination, b.bytes, b.note,
  h.backup_id IS NOT NULL AS held, MIN(c.path) AS damaged
FROM backups AS b
LEFT JOIN holds AS h ON b.backup_id = h.backup_id
LEFT JOIN files AS f ON b.backup_id = f.backup_id AND f.format = 'delta'
LEFT JOIN faults AS c ON f.destination = c.destination AND f.path = c.path
WHERE b.source = :source
  AND b.source_kind = 'changes'
  AND b.kind = 'full'
  AND b.state = 'complete'
  AND (CAST(:to_ts AS BIGINT) IS NULL OR b.end_ts <= :to_ts)
GROUP BY b.backup_id, b.number, b.ts_domain, b.end_ts, b.destination, b.bytes, b.note, h.backup_id
ORDER BY b.end_ts DESC, b.number DESC

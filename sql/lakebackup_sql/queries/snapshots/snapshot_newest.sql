-- The newest backup of a source, whatever has become of it: the next one is compared with what it had.
-- end_ts: the end of the newest one that is not from the future, after which the next one has to be; null: there is none
SELECT b.backup_id, b.number, n.end_ts, b.source_kind
FROM raw_backups AS b
LEFT JOIN (
  SELECT r.source, MAX_BY(r.end_ts, r.number) AS end_ts
  FROM raw_backups AS r
  LEFT ANTI JOIN future_backups AS f ON r.backup_id = f.backup_id
  WHERE r.end_ts <= (SELECT horizon_ms FROM horizon)
  GROUP BY r.source
) AS n ON b.source = n.source
WHERE b.source = :source
ORDER BY b.number DESC
LIMIT 1

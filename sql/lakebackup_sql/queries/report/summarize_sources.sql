-- Each source that has a committed backup: its kind, how many backups and topics it has, and from when to when these
-- backups ended.
SELECT
  b.source, b.source_kind,
  COUNT(DISTINCT b.backup_id) AS backups,
  COUNT(DISTINCT CASE WHEN b.state = 'complete' AND b.intact THEN b.backup_id END) AS intact_backups,
  COUNT(DISTINCT s.scope) AS topics,
  MIN(b.end_time) AS first_end_time,
  MAX(b.end_time) AS last_end_time
FROM backups AS b
LEFT JOIN scopes AS s ON b.backup_id = s.backup_id
GROUP BY b.source, b.source_kind
ORDER BY b.source, b.source_kind

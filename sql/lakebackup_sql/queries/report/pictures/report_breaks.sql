-- For a picture: the times that the chains in `drawn` found to be lost, one row for what one backup found. Times in
-- ms.
SELECT
  d.source, d.line,
  MIN(UNIX_MILLIS(g.from_time)) AS from_ts,
  MAX(UNIX_MILLIS(g.to_time)) AS to_ts,
  COUNT(DISTINCT g.scope) AS scopes
FROM drawn AS d
JOIN backups AS b ON d.source = b.source AND d.base = b.base AND d.branch = b.branch
JOIN gaps AS g ON b.backup_id = g.backup_id
GROUP BY d.source, d.line, b.number
ORDER BY d.source, d.line, from_ts

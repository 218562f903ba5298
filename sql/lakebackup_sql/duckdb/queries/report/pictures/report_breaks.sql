-- 8ffc480b5f9c43f6 backups drawn gaps
SELECT
  d.source,
  d.line,
  MIN(EPOCH_MS(g.from_time)) AS from_ts,
  MAX(EPOCH_MS(g.to_time)) AS to_ts,
  COUNT(DISTINCT g.scope) AS scopes
FROM drawn AS d
JOIN backups AS b
  ON d.source = b.source AND d.base = b.base AND d.branch = b.branch
JOIN gaps AS g
  ON b.backup_id = g.backup_id
GROUP BY
  d.source,
  d.line,
  b.number
ORDER BY
  d.source NULLS FIRST,
  d.line NULLS FIRST,
  from_ts NULLS FIRST

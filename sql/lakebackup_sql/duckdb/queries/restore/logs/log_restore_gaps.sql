-- f28886ea88453bca backups gaps
SELECT
  g.scope,
  g.region,
  g.from_position,
  g.to_position,
  g.reason,
  g.from_ts,
  g.to_ts
FROM gaps AS g
JOIN backups AS b
  ON g.backup_id = b.backup_id
WHERE
  g.source = $source
  AND b.state = 'complete'
  AND g.from_ts < $end_ts
  AND g.to_ts > $start_ts
ORDER BY
  g.from_ts NULLS FIRST,
  g.scope NULLS FIRST,
  g.region NULLS FIRST
LIMIT 100

-- Coverage as the report shows it: what a prune deleted is no gap. Times in ms.
SELECT
  c.source, c.scope, c.epoch, c.region,
  CASE WHEN c.reason = 'pruned' THEN 'pruned' ELSE c.status END AS status,
  c.reason,
  COALESCE(UNIX_MILLIS(c.from_time), c.from_ts) AS from_ts,
  COALESCE(UNIX_MILLIS(c.to_time), c.to_ts) AS to_ts,
  c.from_position, c.to_position
FROM coverage AS c
ORDER BY c.source, c.scope, c.region, c.to_ts

-- Coverage as the report shows it, without topics that are `uncounted`. Two kinds of gaps have a status of their own:
-- what a prune deleted (pruned), and times to which --approximate restores a compacted topic (approximate). Times in
-- ms.
SELECT
  c.source, c.scope, c.epoch, c.region,
  CASE c.reason WHEN 'pruned' THEN 'pruned' WHEN 'compacted' THEN 'approximate' ELSE c.status END AS status,
  c.reason,
  COALESCE(UNIX_MILLIS(c.from_time), c.from_ts) AS from_ts,
  COALESCE(UNIX_MILLIS(c.to_time), c.to_ts) AS to_ts,
  c.from_position, c.to_position
FROM coverage AS c
LEFT ANTI JOIN uncounted AS u ON c.source = u.source AND c.scope = u.scope
ORDER BY c.source, c.scope, c.region, c.to_ts

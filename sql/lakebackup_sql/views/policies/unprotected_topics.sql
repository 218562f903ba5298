-- One row per topic of a cluster that neither a policy nor a backup covers: which topics are unprotected. The view
-- shows the topics that the cluster had when a backup of it was last taken, that no policy of the source names, and of
-- which the source has no backup. Internal topics (__…) do not count.
-- at: when this set of topics was first seen, microseconds since 1970 UTC
-- time: at, in UTC
SELECT t.source, t.scope, t.at, timestamp_micros(t.at) AS time
FROM raw_topics_seen AS t
JOIN (SELECT source, MAX(at) AS at FROM raw_topics_seen GROUP BY source) AS n ON t.source = n.source AND t.at = n.at
LEFT ANTI JOIN (
  SELECT s.source, s.scope
  FROM raw_scopes AS s
  JOIN raw_backups AS b ON s.backup_id = b.backup_id
  WHERE b.state = 'complete'
) AS h ON t.source = h.source AND t.scope = h.scope
WHERE t.scope <> ''

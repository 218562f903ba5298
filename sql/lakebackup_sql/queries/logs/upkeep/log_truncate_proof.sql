-- Files in the relation doomed that something needs that can be restored once the log of :source is cut at :cut: a
-- write after it, a value that such a write names, a file of a full that stays. No row: the truncation is safe.
SELECT g.path, g.cf, g.max_ts
FROM (
  SELECT f.*
  FROM files AS f
  JOIN doomed AS d ON f.destination = d.destination AND f.path = d.path
  LEFT ANTI JOIN departures AS e ON f.destination = e.destination AND f.path = e.path
  LEFT ANTI JOIN leaving AS v ON f.backup_id = v.backup_id
) AS g
WHERE g.format <> 'log-arrow-1'
  OR (g.cf = 'write' AND g.max_ts > :cut)
  OR (
    g.cf = 'default'
    AND EXISTS (
      SELECT 1
      FROM files AS w
      WHERE w.source = :source AND w.cf = 'write' AND w.max_ts > :cut AND w.min_begin_ts <= g.max_ts
    )
  )
ORDER BY g.path
LIMIT 10

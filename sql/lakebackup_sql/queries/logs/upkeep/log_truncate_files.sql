-- The objects of the change feed :source to delete when its log is truncated at :cut, as rows of removals without the
-- prune: log files that end before it, those that a compaction merged with others, all files of the fulls in the
-- relation leaving, and the rows of the relation metas. Values that are stored apart from the writes that commit them
-- stay as long as one of those stays. Files of held backups stay.
WITH own AS (
  SELECT f.*, d.path IS NOT NULL AS replaced
  FROM files AS f
  LEFT ANTI JOIN holds AS h ON f.backup_id = h.backup_id
  LEFT JOIN departures AS d ON f.destination = d.destination AND f.path = d.path
  WHERE f.source = :source
    AND f.format = 'log-arrow-1'
),
begins AS (
  SELECT LEAST(COALESCE(MIN(w.min_begin_ts), :cut), :cut) AS ts
  FROM files AS w
  LEFT ANTI JOIN departures AS d ON w.destination = d.destination AND w.path = d.path
  WHERE w.source = :source
    AND w.cf = 'write'
    AND w.max_ts >= :cut
)
SELECT
  o.source, o.destination, o.path, o.backup_id, o.scope, o.epoch, o.region, o.bytes,
  CASE WHEN o.replaced THEN 'compacted' ELSE 'until' END AS reason
FROM own AS o
CROSS JOIN begins AS s
WHERE o.replaced
  OR (o.cf = 'write' AND o.max_ts < :cut)
  OR (o.cf = 'default' AND o.max_ts < s.ts)
UNION ALL
SELECT
  w.source, w.destination, w.path, w.backup_id, w.scope, w.epoch, w.region, w.bytes, v.reason
FROM files AS w
JOIN leaving AS v ON w.backup_id = v.backup_id
UNION ALL
SELECT m.source, m.destination, m.path, m.backup_id, m.scope, m.epoch, m.region, m.bytes, m.reason
FROM metas AS m
ORDER BY backup_id DESC, path DESC

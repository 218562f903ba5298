-- 074292b115913d0b emptied_backups files planned raw_files raw_removals selected
SELECT
  c.change,
  c.cause,
  COUNT(*) AS files,
  MIN(c.path) AS path
FROM (
  SELECT
    'gone' AS change,
    COALESCE('prune ' || COALESCE(m.prune_id, e.prune_id), 'backup ' || f.backup_id) AS cause,
    p.path
  FROM planned AS p
  LEFT JOIN selected AS s
    ON p.destination = s.destination AND p.path = s.path
  LEFT JOIN raw_files AS f
    ON p.destination = f.destination AND p.path = f.path
  LEFT JOIN raw_removals AS m
    ON p.destination = m.destination AND p.path = m.path
  LEFT JOIN emptied_backups AS e
    ON CASE WHEN f.role <> 'meta' THEN f.backup_id END = e.backup_id
  WHERE
    s.path IS NULL
  UNION ALL
  SELECT
    'added' AS change,
    'backup ' || f.backup_id AS cause,
    s.path
  FROM files AS f
  JOIN selected AS s
    ON s.destination = f.destination AND s.path = f.path
  LEFT JOIN planned AS p
    ON s.destination = p.destination AND s.path = p.path
  WHERE
    p.path IS NULL
) AS c
GROUP BY
  c.change,
  c.cause
ORDER BY
  c.change NULLS FIRST,
  c.cause NULLS FIRST
LIMIT 20

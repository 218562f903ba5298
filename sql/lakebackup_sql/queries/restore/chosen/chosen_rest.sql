-- Paths that a user's SELECT chose (relation chosen) and that are not among the files to restore (relation selected),
-- by their fate: pruned, no backup (of a run that did not end, or a backup that is deleted or unconfirmed), ambiguous
-- (several destinations have the path), unknown. path: the first of them. :first_path,
-- :last_path: the least and the greatest of these paths (chosen_left).
SELECT
  r.reason,
  COUNT(*) AS files,
  MIN(r.path) AS path,
  MAX(r.prune_id) AS prune_id
FROM (
  SELECT
    c.path,
    MAX(COALESCE(m.prune_id, e.prune_id)) AS prune_id,
    CASE
      WHEN COUNT(m.path) + COUNT(e.backup_id) > 0 THEN 'pruned'
      WHEN COUNT(DISTINCT g.destination) > 1 THEN 'ambiguous'
      WHEN COUNT(f.path) > 0 THEN 'no backup'
      ELSE 'unknown'
    END AS reason
  FROM chosen AS c
  LEFT JOIN selected AS s ON c.path = s.path
  LEFT JOIN raw_files AS f ON c.path = f.path AND f.path BETWEEN :first_path AND :last_path
  LEFT JOIN files AS g
    ON f.destination = g.destination AND f.path = g.path AND g.path BETWEEN :first_path AND :last_path
  LEFT JOIN raw_removals AS m ON f.destination = m.destination AND f.path = m.path
  LEFT JOIN emptied_backups AS e ON CASE WHEN f.role <> 'meta' THEN f.backup_id END = e.backup_id
  WHERE s.path IS NULL
  GROUP BY c.path
) AS r
GROUP BY r.reason
ORDER BY r.reason

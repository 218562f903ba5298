-- cc86ac5c2f1d05bd doomed leaving raw_backups snapshot_files
SELECT
  b.source,
  b.number,
  COUNT(*) AS files,
  MIN(w.path) AS path
FROM (
  SELECT
    s.source,
    s.added_in,
    s.gone_in,
    s.path
  FROM snapshot_files AS s
  LEFT JOIN doomed AS d
    ON s.destination = d.destination AND s.path = d.path
  WHERE
    NOT d.path IS NULL OR (
      s.source = $source AND NOT s.stored
    )
) AS w
JOIN raw_backups AS b
  ON w.source = b.source
  AND w.added_in <= b.number
  AND COALESCE(b.number < w.gone_in, TRUE)
ANTI JOIN leaving AS v
  ON b.backup_id = v.backup_id
WHERE
  b.state <> 'deleted'
GROUP BY
  b.source,
  b.number
ORDER BY
  b.source NULLS FIRST,
  b.number NULLS FIRST
LIMIT 10

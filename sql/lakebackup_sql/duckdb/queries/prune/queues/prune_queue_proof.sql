-- f6780ef7a5fe92f1 backups doomed emptied_backups leaving raw_files raw_removals
SELECT
  n.source,
  n.number,
  COUNT(*) AS files,
  MIN(f.path) AS path
FROM (
  SELECT
    b.source,
    b.backup_id,
    b.number,
    b.state,
    b.unlinked,
    v.backup_id IS NULL AND b.state = 'complete' AND b.chained AS stays,
    MIN(
      CASE
        WHEN v.backup_id IS NULL AND b.state = 'complete' AND b.chained
        THEN b.link
      END
    ) OVER (
      PARTITION BY b.base
      ORDER BY b.link DESC
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS next
  FROM backups AS b
  LEFT JOIN leaving AS v
    ON b.backup_id = v.backup_id
  WHERE
    b.source = $source
) AS n
JOIN raw_files AS f
  ON n.backup_id = f.backup_id
LEFT JOIN (
  SELECT DISTINCT
    destination,
    path
  FROM doomed
) AS d
  ON f.destination = d.destination AND f.path = d.path
LEFT JOIN raw_removals AS r
  ON f.destination = r.destination AND f.path = r.path
LEFT JOIN emptied_backups AS e
  ON f.backup_id = e.backup_id
WHERE
  n.state = 'complete'
  AND n.next < n.unlinked
  AND (
    f.role = 'data' OR (
      n.stays AND f.role IN ('config', 'schema')
    )
  )
  AND (
    NOT d.path IS NULL OR NOT r.path IS NULL OR NOT e.backup_id IS NULL
  )
GROUP BY
  n.source,
  n.number
ORDER BY
  n.number NULLS FIRST
LIMIT 10

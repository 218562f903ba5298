-- 3b5536391916141f doomed_log emptied_backups log_flushes raw_files removals
SELECT
  b.backup_id
FROM log_flushes AS b
LEFT JOIN (
  SELECT
    f.backup_id,
    COUNT(*) AS files,
    COUNT(CASE WHEN r.path IS NULL AND e.backup_id IS NULL THEN 1 END) AS stay
  FROM raw_files AS f
  LEFT JOIN (
    SELECT
      destination,
      path
    FROM doomed_log
    UNION ALL
    SELECT
      destination,
      path
    FROM removals
  ) AS r
    ON f.destination = r.destination AND f.path = r.path
  LEFT JOIN emptied_backups AS e
    ON f.backup_id = e.backup_id
  WHERE
    f.source = $source AND f.format = 'log-arrow-1'
  GROUP BY
    f.backup_id
) AS c
  ON b.backup_id = c.backup_id
WHERE
  b.source = $source
  AND (
    c.stay = 0 OR (
      c.files IS NULL AND b.end_ts < $cut
    )
  )
ORDER BY
  b.number NULLS FIRST

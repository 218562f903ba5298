-- 1c5d04752f035d0b raw_backups
SELECT
  CASE
    WHEN MAX(CASE WHEN o.state = 'out_of_sync' AND o.place > b.place THEN 1 END) = 1
    THEN MAX(o.branch) + 1
  END AS branch
FROM raw_backups AS b
JOIN raw_backups AS o
  ON b.source = o.source AND b.base = o.base
WHERE
  b.backup_id = $backup_id

-- 9f4109e41a6f2e80 backups
SELECT
  b.backup_id,
  b.kind,
  b.level,
  b.place,
  b.parent_place,
  b.end_ts,
  b.base = t.base AND b.link <= t.link AND t.link < b.unlinked AS used
FROM backups AS b
JOIN backups AS t
  ON b.source = t.source
WHERE
  t.backup_id = $backup_id AND b.state = 'complete' AND b.place <= t.place
ORDER BY
  b.place NULLS FIRST,
  b.number NULLS FIRST

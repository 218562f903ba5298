-- 3c7eb35ac7526e0d backups
SELECT
  t.backup_id,
  b.backup_id AS needed_id,
  b.link,
  b.state
FROM backups AS t
JOIN backups AS b
  ON t.source = b.source
  AND t.base = b.base
  AND b.link <= t.link
  AND t.link < b.unlinked

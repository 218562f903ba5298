-- 0ae087a522357918 raw_backups
SELECT
  b.backup_id
FROM raw_backups AS b
WHERE
  b.source = $source AND b.state = 'deleted'

-- 674f6072fcbeb02b backups
SELECT
  *
FROM backups
WHERE
  backup_id = $backup_id

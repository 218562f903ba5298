-- 89892c6d385d9903 backups
SELECT
  backup_id
FROM backups
ORDER BY
  backup_id NULLS FIRST

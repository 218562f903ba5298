-- eec4eaf7ef337d45 backups
SELECT
  backup_id
FROM backups
WHERE
  STARTS_WITH(backup_id, $prefix)
ORDER BY
  backup_id NULLS FIRST
LIMIT 20

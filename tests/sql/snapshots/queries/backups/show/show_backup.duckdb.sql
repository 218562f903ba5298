SELECT
  *
FROM backups
WHERE
  backup_id = $backup_id

SELECT
  *
FROM parents
WHERE
  backup_id = $backup_id

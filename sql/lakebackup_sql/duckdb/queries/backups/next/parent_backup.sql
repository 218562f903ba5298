-- 2ad8e8c680a980af parents
SELECT
  *
FROM parents
WHERE
  backup_id = $backup_id

SELECT
  *
FROM holds AS h
WHERE
  h.backup_id = $backup_id

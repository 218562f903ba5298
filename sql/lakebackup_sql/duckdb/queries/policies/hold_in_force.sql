-- 56640fad07b2245f holds
SELECT
  *
FROM holds AS h
WHERE
  h.backup_id = $backup_id

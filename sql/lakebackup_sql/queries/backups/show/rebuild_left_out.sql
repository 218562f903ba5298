-- Whether a rebuild of the catalog could not put a backup in, and why.
SELECT a.at, a.detail
FROM audit AS a
WHERE a.action = 'rebuild left out'
  AND a.subject = :backup_id

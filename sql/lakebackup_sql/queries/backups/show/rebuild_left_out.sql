-- Whether a rebuild of the catalog left a backup out, and why.
SELECT a.at, a.detail
FROM audit AS a
WHERE a.action = 'rebuild left out'
  AND a.subject = :backup_id

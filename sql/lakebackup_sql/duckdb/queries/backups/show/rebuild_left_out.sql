-- 46fc8cb7d06983b5 audit
SELECT
  a."at",
  a.detail
FROM audit AS a
WHERE
  a.action = 'rebuild left out' AND a.subject = $backup_id

-- 1c0022cc3a484199 restores
SELECT
  restore_id,
  detail
FROM restores
WHERE
  scope IS NULL
  AND state IN ('running', 'failed')
  AND target LIKE '%/lakebackup-drill-%'
ORDER BY
  restore_id NULLS FIRST

-- 0ec465183c42dd0b restores
SELECT
  restore_id,
  state,
  "at",
  detail
FROM restores
WHERE
  scope IS NULL AND state IN ('running', 'failed')
ORDER BY
  "at" DESC

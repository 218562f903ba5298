-- 94e24bb72205e6d7 checks
SELECT
  k.outcome,
  k.backup_id,
  k.path,
  k.detail
FROM checks AS k
WHERE
  k.check_id = $check_id AND k.outcome <> 'ok'
ORDER BY
  k.outcome NULLS FIRST,
  k.path NULLS FIRST
LIMIT 100

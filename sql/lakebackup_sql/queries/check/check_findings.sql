-- What check :check_id found wrong, the first 100.
SELECT k.outcome, k.backup_id, k.path, k.detail
FROM checks AS k
WHERE k.check_id = :check_id
  AND k.outcome <> 'ok'
ORDER BY k.outcome, k.path
LIMIT 100

-- b60f7323c34bbac0 checks
SELECT
  k.mode,
  k.outcome,
  COUNT(*) AS objects
FROM checks AS k
WHERE
  k.check_id = $check_id
GROUP BY
  k.mode,
  k.outcome
ORDER BY
  k.mode NULLS FIRST,
  k.outcome NULLS FIRST

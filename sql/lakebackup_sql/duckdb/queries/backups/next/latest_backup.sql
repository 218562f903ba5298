-- 49d333b266f1f7eb parents
SELECT
  *
FROM parents
WHERE
  source = $source
  AND reason IS NULL
  AND (
    TRY_CAST($level AS INT) IS NULL OR level <= $level
  )
ORDER BY
  place DESC,
  number DESC
LIMIT 1

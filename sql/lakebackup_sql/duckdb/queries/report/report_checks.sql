-- c13b204d0aea070f checks
SELECT
  mode,
  check_id,
  "at",
  objects,
  ok,
  missing,
  changed,
  damaged,
  unconfirmed,
  orphan
FROM (
  SELECT
    mode,
    check_id,
    MAX("at") AS "at",
    COUNT(*) AS objects,
    COUNT(CASE WHEN outcome = 'ok' THEN 1 END) AS ok,
    COUNT(CASE WHEN outcome = 'missing' THEN 1 END) AS missing,
    COUNT(CASE WHEN outcome = 'changed' THEN 1 END) AS changed,
    COUNT(CASE WHEN outcome = 'damaged' THEN 1 END) AS damaged,
    COUNT(CASE WHEN outcome = 'unconfirmed' THEN 1 END) AS unconfirmed,
    COUNT(CASE WHEN outcome = 'orphan' THEN 1 END) AS orphan,
    ROW_NUMBER() OVER (PARTITION BY mode ORDER BY MAX("at") DESC, check_id DESC) AS age
  FROM checks
  GROUP BY
    mode,
    check_id
) AS runs
WHERE
  age = 1
ORDER BY
  "at" DESC,
  mode NULLS FIRST

-- c2faa69abd31a0df uncounted
SELECT
  u.source,
  u.scope,
  u.all_rows
FROM (
  SELECT
    source,
    scope,
    ROW_NUMBER() OVER (PARTITION BY source ORDER BY scope NULLS FIRST) AS nth,
    COUNT(*) OVER (PARTITION BY source) AS all_rows
  FROM uncounted
) AS u
WHERE
  u.nth <= $most
ORDER BY
  u.source NULLS FIRST,
  u.scope NULLS FIRST

-- The topics of each source that the report does not count (`uncounted`), at most :most; `all_rows`: how many there
-- are.
SELECT u.source, u.scope, u.all_rows
FROM (
  SELECT
    source, scope,
    ROW_NUMBER() OVER (PARTITION BY source ORDER BY scope) AS nth,
    COUNT(*) OVER (PARTITION BY source) AS all_rows
  FROM uncounted
) AS u
WHERE u.nth <= :most
ORDER BY u.source, u.scope

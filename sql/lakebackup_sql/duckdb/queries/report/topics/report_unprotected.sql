-- 0fc93c7a919e349c unprotected_topics
SELECT
  u.source,
  u.scope
FROM (
  SELECT
    source,
    scope,
    ROW_NUMBER() OVER (PARTITION BY source ORDER BY scope NULLS FIRST) AS nth
  FROM unprotected_topics
) AS u
WHERE
  u.nth <= $most
ORDER BY
  u.source NULLS FIRST,
  u.scope NULLS FIRST

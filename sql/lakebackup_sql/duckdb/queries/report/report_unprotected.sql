-- a4cf5c1f8cc03d6a unprotected_topics
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

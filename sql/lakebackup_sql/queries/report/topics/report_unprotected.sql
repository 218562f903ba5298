-- The topics that neither a backup holds nor a policy names (`unprotected_topics`): the first :most of each source, by
-- name.
SELECT u.source, u.scope
FROM (
  SELECT source, scope, ROW_NUMBER() OVER (PARTITION BY source ORDER BY scope) AS nth
  FROM unprotected_topics
) AS u
WHERE u.nth <= :most
ORDER BY u.source, u.scope

-- The topics of each source that are in no backup and no policy (`unprotected_topics`), at most :most.
SELECT u.source, u.scope
FROM (
  SELECT source, scope, ROW_NUMBER() OVER (PARTITION BY source ORDER BY scope) AS nth
  FROM unprotected_topics
) AS u
WHERE u.nth <= :most
ORDER BY u.source, u.scope

-- The restore points of the topics in :scopes (names separated by commas) of :source, in the place of restore_points: an
-- engine need not compute those of all others.
SELECT *
FROM chain_points
WHERE source = :source
  AND ARRAY_CONTAINS(SPLIT(:scopes, ','), scope)

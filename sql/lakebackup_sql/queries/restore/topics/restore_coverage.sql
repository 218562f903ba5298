-- Until when each topic of a source is covered by a backup.
SELECT
  t.scope,
  t.covers_to AS end_ts
FROM chain_points AS t
WHERE t.source = :source
  AND t.newest
ORDER BY t.scope

-- Until when each topic of a source is covered by a backup, and the place of that among the source's backups.
SELECT
  t.scope, t.place,
  t.covers_to AS end_ts
FROM chain_points AS t
WHERE t.source = :source
  AND t.newest
ORDER BY t.scope

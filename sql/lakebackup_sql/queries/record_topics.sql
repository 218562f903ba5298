-- Topics whose records can be asked for, with the last instant that a backup answers for.
SELECT t.source, t.scope, t.covers_to AS end_ts
FROM restore_points AS t
WHERE t.newest
ORDER BY t.source, t.scope

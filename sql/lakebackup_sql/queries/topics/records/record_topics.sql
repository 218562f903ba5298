-- Topics whose records can be queried, with the last instant that a backup covers; and an engine's queues, of which
-- they cannot.
SELECT t.source, t.scope, t.covers_to AS end_ts, b.source_kind
FROM chain_points AS t
JOIN raw_backups AS b ON t.backup_id = b.backup_id
WHERE t.newest
  AND b.source_kind <> 'snapshot'
ORDER BY t.source, t.scope

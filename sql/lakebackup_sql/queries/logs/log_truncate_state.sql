-- What the log of the change feed :source holds: from where on, and up to its newest checkpoint.
-- floor_ts: what came up to it was deleted; null: nothing was
SELECT
  MIN(b.ts_domain) AS ts_domain,
  MIN(b.start_ts) AS start_ts,
  MAX(b.end_ts) AS end_ts,
  MAX(f.low_position) AS floor_ts
FROM backups AS b
LEFT JOIN floors AS f ON b.source = f.source AND f.scope = '-'
WHERE b.source = :source
  AND b.source_kind = 'changes'
  AND b.kind = 'log'
  AND b.state = 'complete'
HAVING COUNT(*) > 0

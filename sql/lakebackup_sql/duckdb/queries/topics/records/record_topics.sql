-- de679cf3fee66b54 chain_points raw_backups
SELECT
  t.source,
  t.scope,
  t.covers_to AS end_ts,
  b.source_kind
FROM chain_points AS t
JOIN raw_backups AS b
  ON t.backup_id = b.backup_id
WHERE
  t.newest AND b.source_kind <> 'snapshot'
ORDER BY
  t.source NULLS FIRST,
  t.scope NULLS FIRST

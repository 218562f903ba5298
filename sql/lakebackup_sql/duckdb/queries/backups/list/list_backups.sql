-- 733eefeecc42c350 backups pruned_backups
SELECT
  b.source,
  b.number,
  b.backup_id,
  b.kind,
  b.state,
  b.intact AND p.backup_id IS NULL AS intact,
  b.base,
  b.parent,
  b.chain_position,
  b.start_ts,
  b.end_ts,
  b.end_time,
  b.started_time,
  b.finished_time,
  b.files,
  b.bytes,
  b.entries,
  b.isolation,
  b.codec,
  b.tool,
  b.note
FROM backups AS b
LEFT JOIN pruned_backups AS p
  ON b.backup_id = p.backup_id
WHERE
  TRY_CAST($source AS TEXT) IS NULL OR b.source = $source
ORDER BY
  b.finished_time DESC,
  b.source NULLS FIRST,
  b.number DESC

-- The backups of a source, or of all: the one that ended last comes first. One that was pruned is not intact.
SELECT
  b.source, b.number, b.backup_id, b.kind, b.state, b.intact AND p.backup_id IS NULL AS intact, b.base, b.parent,
  b.chain_position, b.start_ts, b.end_ts, b.end_time, b.started_time, b.finished_time, b.files, b.bytes, b.entries,
  b.isolation, b.codec, b.tool, b.note
FROM backups AS b
LEFT JOIN pruned_backups AS p ON b.backup_id = p.backup_id
WHERE CAST(:source AS STRING) IS NULL OR b.source = :source
ORDER BY b.finished_time DESC NULLS LAST, b.source, b.number DESC

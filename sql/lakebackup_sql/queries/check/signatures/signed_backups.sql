-- The backups of :source, with their states, and the columns that their signed manifests have.
SELECT
  b.backup_id, b.state, b.number, b.source_kind, b.kind, b.level, b.parent, b.base, b.place, b.ts_domain, b.start_ts,
  b.end_ts, b.started_at, b.files, b.bytes, b.entries, b.digest, b.codec
FROM raw_backups AS b
WHERE b.source = :source
ORDER BY b.number, b.backup_id

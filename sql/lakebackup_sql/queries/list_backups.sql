-- The backups of a source, or of all, the newest first.
SELECT
  source, number, backup_id, kind, state, intact, base, parent, chain_position, start_ts, end_ts, end_time,
  started_time, finished_time, files, bytes, entries, isolation, codec, tool, note
FROM backups
WHERE CAST(:source AS STRING) IS NULL OR source = :source
ORDER BY source, number DESC

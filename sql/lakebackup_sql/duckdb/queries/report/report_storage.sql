-- 145c1d044604a040 storage_by_source
SELECT
  source,
  destination,
  backups,
  files,
  entries,
  bytes,
  raw_bytes,
  COALESCE(EPOCH_MS(oldest_time), oldest_ts) AS oldest_ts,
  COALESCE(EPOCH_MS(newest_time), newest_ts) AS newest_ts,
  pruned_files,
  pruned_bytes
FROM storage_by_source
ORDER BY
  source NULLS FIRST,
  destination NULLS FIRST

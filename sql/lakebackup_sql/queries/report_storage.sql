-- What each source holds in each place.
SELECT
  source,
  destination,
  backups,
  files,
  entries,
  bytes,
  raw_bytes,
  oldest_ts,
  newest_ts,
  pruned_files,
  pruned_bytes
FROM storage_by_source
ORDER BY source, destination

-- What each source holds in each place. Times in ms.
SELECT
  source, destination, backups, files, entries, bytes, raw_bytes,
  COALESCE(UNIX_MILLIS(oldest_time), oldest_ts) AS oldest_ts,
  COALESCE(UNIX_MILLIS(newest_time), newest_ts) AS newest_ts,
  pruned_files, pruned_bytes
FROM storage_by_source
ORDER BY source, destination

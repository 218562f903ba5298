-- One row per source and repository (`destination`): how much data is stored there, and how much prunes deleted.
-- files: number of stored data files
-- bytes: size of these files
-- raw_bytes: size of their records before compression
-- entries: number of their records
-- backups: number of backups that wrote these files
-- oldest_ts: least timestamp of their records; null: no record has one
-- newest_ts: greatest timestamp of their records; null: no record has one
-- oldest_time: oldest_ts, in UTC
-- newest_time: newest_ts, in UTC
-- pruned_files: number of data files that prunes deleted
-- pruned_bytes: size of the files that prunes deleted
SELECT
  COALESCE(h.source, r.source) AS source,
  COALESCE(h.destination, r.destination) AS destination,
  COALESCE(h.files, 0) AS files,
  COALESCE(h.bytes, 0) AS bytes,
  COALESCE(h.raw_bytes, 0) AS raw_bytes,
  COALESCE(h.entries, 0) AS entries,
  COALESCE(h.backups, 0) AS backups,
  h.oldest_ts, h.newest_ts,
  timestamp_millis(h.oldest_ts DIV CASE h.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END) AS oldest_time,
  timestamp_millis(h.newest_ts DIV CASE h.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END) AS newest_time,
  COALESCE(r.pruned_files, 0) AS pruned_files,
  COALESCE(r.pruned_bytes, 0) AS pruned_bytes
FROM (
  SELECT
    f.source, f.destination,
    CAST(SUM(f.files) AS BIGINT) AS files,
    CAST(SUM(f.bytes) AS BIGINT) AS bytes,
    CAST(SUM(f.raw_bytes) AS BIGINT) AS raw_bytes,
    CAST(SUM(f.entries) AS BIGINT) AS entries,
    COUNT(DISTINCT f.backup_id) AS backups,
    MIN(f.oldest_ts) AS oldest_ts,
    MAX(f.newest_ts) AS newest_ts,
    MIN(f.ts_domain) AS ts_domain
  FROM (
    SELECT
      source, destination, backup_id,
      COUNT(*) AS files,
      SUM(bytes) AS bytes,
      SUM(raw_bytes) AS raw_bytes,
      SUM(entries) AS entries,
      MIN(CASE WHEN min_ts >= 0 AND role = 'data' AND format <> 'delta' THEN min_ts END) AS oldest_ts,
      MAX(CASE WHEN max_ts >= 0 AND role = 'data' AND format <> 'delta' THEN max_ts END) AS newest_ts,
      MIN(ts_domain) AS ts_domain
    FROM files
    GROUP BY source, destination, backup_id
  ) AS f
  GROUP BY f.source, f.destination
) AS h
FULL OUTER JOIN (
  SELECT source, destination, CAST(SUM(COALESCE(files, 1)) AS BIGINT) AS pruned_files, CAST(SUM(bytes) AS BIGINT) AS pruned_bytes
  FROM raw_removals
  GROUP BY source, destination
) AS r ON h.source = r.source AND h.destination = r.destination

-- How much there is to check in the backups whose ids are in :backup_ids (parted by commas; empty: all), of those
-- that this program keeps the files of (topics, and archives that were imported).
SELECT
  COUNT(*) AS files,
  COALESCE(CAST(SUM(f.bytes) AS BIGINT), 0) AS bytes,
  COALESCE(CAST(SUM(f.entries) AS BIGINT), 0) AS entries
FROM files AS f
JOIN backups AS b
  ON f.backup_id = b.backup_id
WHERE b.source_kind IN ('kafka', 'couchbase')
  AND (:backup_ids = '' OR ARRAY_CONTAINS(SPLIT(:backup_ids, ','), f.backup_id))

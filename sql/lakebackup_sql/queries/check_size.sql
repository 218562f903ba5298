-- How much there is to check in the backups whose ids are in :backup_ids (parted by commas; empty: all).
SELECT
  COUNT(*) AS files,
  COALESCE(CAST(SUM(f.bytes) AS BIGINT), 0) AS bytes,
  COALESCE(CAST(SUM(f.entries) AS BIGINT), 0) AS entries
FROM files AS f
WHERE :backup_ids = '' OR ARRAY_CONTAINS(SPLIT(:backup_ids, ','), f.backup_id)

-- 1c4d8ad521cfe123 backups files own_backups snapshot_files
SELECT
  COUNT(*) AS files,
  COALESCE(CAST(SUM(f.bytes) AS BIGINT), 0) AS bytes,
  COALESCE(CAST(SUM(f.entries) AS BIGINT), 0) AS entries,
  COUNT(f.key_id) AS encrypted
FROM files AS f
JOIN own_backups AS b
  ON f.backup_id = b.backup_id
LEFT JOIN (
  SELECT DISTINCT
    s.destination,
    s.path
  FROM snapshot_files AS s
  JOIN backups AS h
    ON s.source = h.source
    AND s.added_in <= h.number
    AND COALESCE(h.number < s.gone_in, TRUE)
  WHERE
    ARRAY_CONTAINS(STR_SPLIT_REGEX($backup_ids, ','), h.backup_id)
) AS w
  ON f.destination = w.destination AND f.path = w.path
WHERE
  (
    $backup_ids = ''
    OR NOT w.path IS NULL
    OR ARRAY_CONTAINS(STR_SPLIT_REGEX($backup_ids, ','), f.backup_id)
  )

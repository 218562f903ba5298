-- What the imported files (relation made_files: rows of files) add up to, for each backup.
SELECT
  f.backup_id,
  COUNT(*) AS files,
  CAST(SUM(f.bytes) AS BIGINT) AS bytes,
  CAST(SUM(f.entries) AS BIGINT) AS entries
FROM made_files AS f
GROUP BY f.backup_id

-- ae87bec873b85a86 made_files
SELECT
  f.backup_id,
  COUNT(*) AS files,
  CAST(SUM(f.bytes) AS BIGINT) AS bytes,
  CAST(SUM(f.entries) AS BIGINT) AS entries
FROM made_files AS f
GROUP BY
  f.backup_id

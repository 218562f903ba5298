-- 783312f1594e14a3 backups future_backups leaving
SELECT
  COUNT(*) AS backups
FROM backups AS b
ANTI JOIN leaving AS v
  ON b.backup_id = v.backup_id
ANTI JOIN future_backups AS f
  ON b.backup_id = f.backup_id
WHERE
  b.source = $source AND b.state = 'complete' AND b.intact

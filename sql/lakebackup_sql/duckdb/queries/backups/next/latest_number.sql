-- 8d1d5209a0086bfb backups
SELECT
  MAX(number) AS number
FROM backups
WHERE
  source = $source

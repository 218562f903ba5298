SELECT
  MAX(number) AS number
FROM backups
WHERE
  source = $source

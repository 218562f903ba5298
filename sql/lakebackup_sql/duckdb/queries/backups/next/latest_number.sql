-- ffbf437506f8ccd1 backups raw_departures
SELECT
  MAX(n.number) AS number
FROM (
  SELECT
    number
  FROM backups
  WHERE
    source = $source
  UNION ALL
  SELECT
    gone_in AS number
  FROM raw_departures
  WHERE
    source = $source
) AS n

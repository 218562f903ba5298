-- 927786356fdc3eef raw_departures
SELECT
  MAX(gone_in) AS number
FROM raw_departures
WHERE
  source = $source AND gone_in > $number

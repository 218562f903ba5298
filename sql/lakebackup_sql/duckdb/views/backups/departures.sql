-- cae97dc1dc98df59 raw_backups raw_departures
SELECT
  d.*
FROM raw_departures AS d
JOIN raw_backups AS b
  ON b.source = d.source AND b.number = d.gone_in
WHERE
  b.state IN ('complete', 'out_of_sync')

-- 15b6956b99c0f975 departures files raw_backups
SELECT
  f.*,
  d.gone_in,
  b.backup_id AS gone_by
FROM files AS f
LEFT JOIN departures AS d
  ON d.source = f.source
  AND d.destination = f.destination
  AND d.path = f.path
  AND d.added_in = f.added_in
LEFT JOIN raw_backups AS b
  ON b.source = d.source AND b.number = d.gone_in

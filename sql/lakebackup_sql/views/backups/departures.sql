-- One row per data file that left the file set of its source: which backups had the file. These are the backups with a
-- number from `added_in` to `gone_in` - 1.
SELECT d.*
FROM raw_departures AS d
JOIN raw_backups AS b ON b.source = d.source AND b.number = d.gone_in
WHERE b.state IN ('complete', 'out_of_sync')

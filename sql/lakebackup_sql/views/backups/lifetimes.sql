-- One row per data file with its lifetime: which backups of its source have the file. These are the backups with a
-- number from `added_in` to `gone_in` - 1.
-- gone_in: number of the first backup that no longer found the file in the source; null: it is still there
-- gone_by: id of that backup
SELECT f.*, d.gone_in, b.backup_id AS gone_by
FROM files AS f
LEFT JOIN departures AS d
  ON d.source = f.source AND d.destination = f.destination AND d.path = f.path AND d.added_in = f.added_in
LEFT JOIN raw_backups AS b ON b.source = d.source AND b.number = d.gone_in

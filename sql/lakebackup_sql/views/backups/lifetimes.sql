-- Data files with the whole of their lifetime: backups with a number from added_in to before gone_in count them.
-- gone_in: number of the first backup that found the file gone from the source; null: it is still there
-- gone_by: that backup
SELECT f.*, d.gone_in, b.backup_id AS gone_by
FROM files AS f
LEFT JOIN departures AS d
  ON d.source = f.source AND d.destination = f.destination AND d.path = f.path AND d.added_in = f.added_in
LEFT JOIN raw_backups AS b ON b.source = d.source AND b.number = d.gone_in

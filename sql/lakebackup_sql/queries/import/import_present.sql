-- Files of the sources in :sources (separated by commas) that their newest backup in the catalog has.
SELECT f.*
FROM raw_files AS f
JOIN raw_backups AS b ON f.backup_id = b.backup_id
LEFT JOIN raw_departures AS d
  ON f.destination = d.destination AND f.path = d.path AND f.added_in = d.added_in AND f.backup_id = d.backup_id
WHERE ARRAY_CONTAINS(SPLIT(:sources, ','), f.source)
  AND d.path IS NULL

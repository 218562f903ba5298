-- dc07dffd5949bdf0 raw_backups raw_departures raw_files
SELECT
  f.*
FROM raw_files AS f
JOIN raw_backups AS b
  ON f.backup_id = b.backup_id
LEFT JOIN raw_departures AS d
  ON f.destination = d.destination
  AND f.path = d.path
  AND f.added_in = d.added_in
  AND f.backup_id = d.backup_id
WHERE
  ARRAY_CONTAINS(STR_SPLIT_REGEX($sources, ','), f.source) AND d.path IS NULL

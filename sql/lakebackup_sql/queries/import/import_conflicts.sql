-- Given files (relation given_files) of backups that the catalog has already, but with other files. The relation
-- known_files has the files of those backups.
SELECT g.backup_id, g.path, g.row_file, g.row_number
FROM given_files AS g
LEFT JOIN known_files AS f
  ON g.backup_id = f.backup_id
  AND g.path = f.path
  AND g.bytes = f.bytes
  AND (g.sha256 IS NULL OR g.sha256 = f.sha256)
WHERE f.path IS NULL
ORDER BY g.row_file, g.row_number
LIMIT 20

-- 8ad360c224d83d32 given_files known_files
SELECT
  g.backup_id,
  g.path,
  g.row_file,
  g.row_number
FROM given_files AS g
LEFT JOIN known_files AS f
  ON g.backup_id = f.backup_id
  AND g.path = f.path
  AND g.bytes = f.bytes
  AND (
    g.sha256 IS NULL OR g.sha256 = f.sha256
  )
WHERE
  f.path IS NULL
ORDER BY
  g.row_file NULLS FIRST,
  g.row_number NULLS FIRST
LIMIT 20

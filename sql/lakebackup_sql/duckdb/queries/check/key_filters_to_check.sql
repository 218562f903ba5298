-- d94cdb22fa5b3cdf files
SELECT
  f.backup_id,
  f.destination,
  f.keys_path,
  f.keys_start,
  f.keys_blocks,
  f.sha256
FROM files AS f
WHERE
  NOT f.keys_path IS NULL
  AND (
    $backup_ids = ''
    OR ARRAY_CONTAINS(STR_SPLIT_REGEX($backup_ids, ','), f.backup_id)
  )
ORDER BY
  f.destination NULLS FIRST,
  f.keys_path NULLS FIRST,
  f.keys_start NULLS FIRST

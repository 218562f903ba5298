-- 810c38cde78a18fb backups files snapshot_files
SELECT DISTINCT
  f.backup_id,
  f.destination,
  f.path,
  s.position,
  s.bytes,
  s.sha256
FROM files AS f
JOIN snapshot_files AS s
  ON f.destination = s.destination AND f.path = s.path
LEFT JOIN (
  SELECT
    source,
    number
  FROM backups
  WHERE
    ARRAY_CONTAINS(STR_SPLIT_REGEX($backup_ids, ','), backup_id)
) AS h
  ON s.source = h.source
  AND s.added_in <= h.number
  AND COALESCE(h.number < s.gone_in, TRUE)
WHERE
  f.format = 'pack'
  AND s.bytes > 0
  AND NOT s.sha256 IS NULL
  AND (
    $backup_ids = '' OR NOT h.number IS NULL
  )
ORDER BY
  f.destination NULLS FIRST,
  f.path NULLS FIRST,
  s.position NULLS FIRST

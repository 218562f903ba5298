-- b52640c6bfd01467 backups files own_backups snapshot_files
SELECT
  f.backup_id,
  f.scope,
  f.epoch,
  f.region,
  f.start_position,
  f.end_position,
  f.destination,
  f.path,
  f.format,
  f.codec,
  f.key_id,
  f.cf,
  f.bytes,
  f.sha256,
  f.entries,
  f.min_ts,
  f.max_ts,
  f.min_tid,
  f.max_tid
FROM files AS f
JOIN own_backups AS b
  ON f.backup_id = b.backup_id
LEFT JOIN (
  SELECT DISTINCT
    s.destination,
    s.path
  FROM snapshot_files AS s
  JOIN backups AS h
    ON s.source = h.source
    AND s.added_in <= h.number
    AND COALESCE(h.number < s.gone_in, TRUE)
  WHERE
    ARRAY_CONTAINS(STR_SPLIT_REGEX($backup_ids, ','), h.backup_id)
) AS w
  ON f.destination = w.destination AND f.path = w.path
WHERE
  (
    $backup_ids = ''
    OR NOT w.path IS NULL
    OR ARRAY_CONTAINS(STR_SPLIT_REGEX($backup_ids, ','), f.backup_id)
  )
ORDER BY
  f.destination NULLS FIRST,
  f.path NULLS FIRST

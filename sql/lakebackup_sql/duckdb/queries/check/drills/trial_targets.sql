-- ff1dd1c74d2e145a chain_points raw_backups
SELECT
  t.source,
  b.source_kind,
  t.destination,
  t.backup_id,
  MAX(t.kind) AS kind,
  t.covers_to AS to_ts,
  ARRAY_TO_STRING(
    LIST_SORT(ARRAY_AGG(t.scope) FILTER(WHERE t.scope IS NOT NULL), 'ASC', 'NULLS FIRST'),
    ','
  ) AS scopes
FROM chain_points AS t
JOIN raw_backups AS b
  ON t.backup_id = b.backup_id
WHERE
  (
    $backup_ids = '' AND t.newest
  )
  OR ARRAY_CONTAINS(STR_SPLIT_REGEX($backup_ids, ','), t.backup_id)
GROUP BY
  t.source,
  b.source_kind,
  t.destination,
  t.backup_id,
  t.covers_to
ORDER BY
  t.source NULLS FIRST,
  t.backup_id NULLS FIRST,
  t.covers_to NULLS FIRST

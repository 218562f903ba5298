SELECT
  MIN(b.backup_id) AS first_backup,
  MAX(b.backup_id) AS last_backup
FROM restore_points AS t
JOIN backups AS b
  ON t.source = b.source
  AND t.base = b.base
  AND b.link <= t.link
  AND t.link < b.unlinked
WHERE
  t.source = $source
  AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), t.scope)
  AND b.state = 'complete'
  AND (
    (
      TRY_CAST($to_ts AS BIGINT) IS NULL AND t.newest
    )
    OR (
      t.covers_from < TRY_CAST($to_ts AS BIGINT)
      AND TRY_CAST($to_ts AS BIGINT) <= t.covers_to
    )
  )

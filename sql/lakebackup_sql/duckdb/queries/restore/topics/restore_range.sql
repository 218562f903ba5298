-- b9f9339d11d09d01 backups chain_points
SELECT
  MIN(b.backup_id) AS first_backup,
  MAX(b.backup_id) AS last_backup
FROM chain_points AS t
JOIN backups AS b
  ON t.source = b.source
  AND t.base = b.base
  AND b.link <= t.link
  AND t.link < b.unlinked
WHERE
  t.source = $source
  AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), t.scope)
  AND b.state = 'complete'
  AND CASE
    WHEN TRY_CAST($to_ts AS BIGINT) IS NULL
    THEN t.newest
    ELSE $to_ts > t.covers_from AND $to_ts <= t.covers_to
  END

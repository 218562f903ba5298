-- The least and the greatest id of the backups that a restore of the topics in :scopes (names separated by commas) to
-- :to_ts (null: the newest) needs: with them, an engine need not read the files of all the others.
SELECT
  MIN(b.backup_id) AS first_backup,
  MAX(b.backup_id) AS last_backup
FROM chain_points AS t
JOIN backups AS b ON t.source = b.source AND t.base = b.base AND b.link <= t.link AND t.link < b.unlinked
WHERE t.source = :source
  AND ARRAY_CONTAINS(SPLIT(:scopes, ','), t.scope)
  AND b.state = 'complete'
  AND CASE WHEN CAST(:to_ts AS BIGINT) IS NULL THEN t.newest ELSE :to_ts > t.covers_from AND :to_ts <= t.covers_to END

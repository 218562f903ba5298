-- The records of a schema registry's topic that a restore to :to_ts (null: to the newest) writes, in order; of a topic
-- that was not read as a registry's, none.
SELECT DISTINCT
  s.kind, s.subject, s.version, s.schema_id, s.schema_type, s.schema_text, s.schema_references, s.erased, s.problem,
  s.log_region, s.log_position
FROM schemas AS s
JOIN backups AS b ON b.backup_id = s.backup_id
JOIN chain_points AS t
  ON s.source = t.source AND s.scope = t.scope AND s.epoch = t.epoch AND b.base = t.base AND b.link <= t.link
  AND t.link < b.unlinked
WHERE s.source = :source
  AND s.scope = :scope
  AND CASE WHEN CAST(:to_ts AS BIGINT) IS NULL THEN t.newest ELSE :to_ts > t.covers_from AND :to_ts <= t.covers_to END
  AND (CAST(:to_ts AS BIGINT) IS NULL OR s.log_ts <= CAST(:to_ts AS BIGINT))
ORDER BY CAST(s.log_region AS BIGINT), s.log_position

-- 5796cfdcd51accea backups chain_points schemas
SELECT DISTINCT
  s.kind,
  s.subject,
  s.version,
  s.schema_id,
  s.schema_type,
  s.schema_text,
  s.schema_references,
  s.erased,
  s.problem,
  s.log_region,
  s.log_position
FROM schemas AS s
JOIN backups AS b
  ON b.backup_id = s.backup_id
JOIN chain_points AS t
  ON s.source = t.source
  AND s.scope = t.scope
  AND s.epoch = t.epoch
  AND b.base = t.base
  AND b.link <= t.link
  AND t.link < b.unlinked
WHERE
  s.source = $source
  AND s.scope = $scope
  AND CASE
    WHEN TRY_CAST($to_ts AS BIGINT) IS NULL
    THEN t.newest
    ELSE $to_ts > t.covers_from AND $to_ts <= t.covers_to
  END
  AND (
    TRY_CAST($to_ts AS BIGINT) IS NULL OR s.log_ts <= TRY_CAST($to_ts AS BIGINT)
  )
ORDER BY
  TRY_CAST(s.log_region AS BIGINT) NULLS FIRST,
  s.log_position NULLS FIRST

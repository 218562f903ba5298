-- 10817162f1f79daf chain_points raw_files raw_positions
SELECT
  t.scope,
  p.region,
  t.backup_id,
  p.start_position,
  p.end_position,
  CAST(SUM(f.entries) AS BIGINT) AS entries,
  MIN(f.min_ts) AS min_ts,
  CASE WHEN t.covers_from < 0 THEN NULL ELSE t.covers_from END AS before_ts,
  t.covers_to AS after_ts
FROM chain_points AS t
JOIN raw_positions AS p
  ON t.backup_id = p.backup_id AND t.scope = p.scope AND t.epoch = p.epoch
LEFT JOIN raw_files AS f
  ON t.backup_id = f.backup_id
  AND f.backup_id BETWEEN $first_backup AND $last_backup
  AND f.source = $source
  AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), f.scope)
  AND f.role = 'data'
  AND p.scope = f.scope
  AND p.epoch = f.epoch
  AND p.region = f.region
WHERE
  t.source = $source
  AND p.source = $source
  AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), p.scope)
  AND p.backup_id BETWEEN $first_backup AND $last_backup
  AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), t.scope)
  AND t.covers_from < TRY_CAST($to_ts AS BIGINT)
  AND TRY_CAST($to_ts AS BIGINT) < t.covers_to
GROUP BY
  t.scope,
  p.region,
  t.backup_id,
  p.start_position,
  p.end_position,
  t.covers_from,
  t.covers_to
ORDER BY
  t.scope NULLS FIRST,
  TRY_CAST(p.region AS BIGINT) NULLS FIRST

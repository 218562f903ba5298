-- 28225eac8490a849 backups chain_points floors positions scopes
SELECT
  p.scope,
  p.epoch,
  p.region,
  GREATEST(MIN(p.start_position), COALESCE(MAX(l.low_position), 0)) AS start_position,
  MAX(CASE WHEN p.backup_id = t.backup_id THEN p.end_position END) AS end_position
FROM positions AS p
JOIN backups AS b
  ON p.backup_id = b.backup_id
JOIN scopes AS s
  ON p.backup_id = s.backup_id AND p.scope = s.scope AND p.epoch = s.epoch
JOIN chain_points AS t
  ON p.source = t.source
  AND p.scope = t.scope
  AND p.epoch = t.epoch
  AND s.generation = t.generation
  AND b.base = t.base
  AND b.link <= t.link
  AND t.link < b.unlinked
LEFT JOIN floors AS l
  ON p.source = l.source
  AND p.scope = l.scope
  AND p.epoch = l.epoch
  AND p.region = l.region
WHERE
  p.source = $source
  AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), p.scope)
  AND p.backup_id BETWEEN $first_backup AND $last_backup
  AND s.source = $source
  AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), s.scope)
  AND b.state = 'complete'
  AND CASE
    WHEN TRY_CAST($to_ts AS BIGINT) IS NULL
    THEN t.newest
    ELSE $to_ts > t.covers_from AND $to_ts <= t.covers_to
  END
GROUP BY
  p.scope,
  p.epoch,
  p.region
HAVING
  NOT MAX(CASE WHEN p.backup_id = t.backup_id THEN p.end_position END) IS NULL
ORDER BY
  p.scope NULLS FIRST,
  p.epoch NULLS FIRST,
  TRY_CAST(p.region AS BIGINT) NULLS FIRST

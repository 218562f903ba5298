-- f41eeb6704bcdc8c backups chain_points emptied_backups floors positions raw_files raw_removals
SELECT
  a.scope,
  a.region,
  COALESCE(l.low_position, 0) AS low_position,
  TRY_CAST(NULL AS BIGINT) AS after_ts
FROM (
  SELECT
    f.source,
    f.scope,
    f.epoch,
    f.region,
    t.backup_id,
    MAX(f.end_position) AS gone_position,
    MAX(CASE WHEN r.path IS NULL AND e.backup_id IS NULL THEN 1 ELSE 0 END) AS kept
  FROM raw_files AS f
  JOIN backups AS b
    ON f.backup_id = b.backup_id
  JOIN chain_points AS t
    ON f.source = t.source
    AND f.scope = t.scope
    AND f.epoch = t.epoch
    AND f.generation = t.generation
    AND b.base = t.base
    AND b.link <= t.link
    AND t.link < b.unlinked
  SEMI JOIN (
    SELECT DISTINCT
      d.source
    FROM raw_removals AS d
    WHERE
      d.source = $source
      AND (
        NOT d.files IS NULL OR ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), d.scope)
      )
  ) AS n
    ON f.source = n.source
  LEFT JOIN raw_removals AS r
    ON f.destination = r.destination AND f.path = r.path
  LEFT JOIN emptied_backups AS e
    ON f.backup_id = e.backup_id
  WHERE
    f.source = $source
    AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), f.scope)
    AND f.backup_id BETWEEN $first_backup AND $last_backup
    AND b.state = 'complete'
    AND f.role = 'data'
  GROUP BY
    f.source,
    f.scope,
    f.epoch,
    f.region,
    t.backup_id
) AS a
JOIN positions AS p
  ON a.backup_id = p.backup_id
  AND a.scope = p.scope
  AND a.epoch = p.epoch
  AND a.region = p.region
  AND p.low_position < a.gone_position
  AND p.source = $source
  AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), p.scope)
  AND p.backup_id BETWEEN $first_backup AND $last_backup
LEFT JOIN floors AS l
  ON a.source = l.source
  AND a.scope = l.scope
  AND a.epoch = l.epoch
  AND a.region = l.region
WHERE
  a.kept = 0
ORDER BY
  a.scope NULLS FIRST,
  a.region NULLS FIRST

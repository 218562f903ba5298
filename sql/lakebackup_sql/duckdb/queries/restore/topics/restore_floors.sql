-- 17d23e2c80617777 backups chain_points emptied_backups floors raw_files raw_removals scopes
SELECT
  a.scope,
  a.region,
  COALESCE(l.low_position, 0) AS low_position,
  CASE
    WHEN a.kept_min_ts IS NULL OR a.kept_min_ts > a.gone_max_ts
    THEN a.gone_max_ts
    ELSE a.kept_min_ts
  END AS after_ts
FROM (
  SELECT
    f.scope,
    f.epoch,
    f.region,
    MIN(CASE WHEN r.path IS NULL AND e.backup_id IS NULL THEN f.min_ts END) AS kept_min_ts,
    MAX(CASE WHEN NOT r.path IS NULL OR NOT e.backup_id IS NULL THEN f.max_ts END) AS gone_max_ts,
    MAX(
      CASE
        WHEN (
          NOT r.path IS NULL OR NOT e.backup_id IS NULL
        )
        AND f.min_ts <= TRY_CAST($to_ts AS BIGINT)
        THEN 1
        ELSE 0
      END
    ) AS gone,
    MAX(
      CASE
        WHEN r.path IS NULL AND e.backup_id IS NULL AND f.min_ts <= TRY_CAST($to_ts AS BIGINT)
        THEN 1
        ELSE 0
      END
    ) AS kept
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
    AND t.covers_from < TRY_CAST($to_ts AS BIGINT)
    AND TRY_CAST($to_ts AS BIGINT) <= t.covers_to
  GROUP BY
    f.scope,
    f.epoch,
    f.region
) AS a
LEFT JOIN floors AS l
  ON l.source = $source
  AND a.scope = l.scope
  AND a.epoch = l.epoch
  AND a.region = l.region
WHERE
  a.gone = 1 AND a.kept = 0 AND a.gone_max_ts > TRY_CAST($to_ts AS BIGINT)
UNION ALL
SELECT
  l.scope,
  l.region,
  l.low_position,
  CASE WHEN o.end_ts < k.covers_to THEN o.end_ts + 1 ELSE k.covers_to END AS after_ts
FROM floors AS l
JOIN (
  SELECT
    g.scope,
    g.epoch,
    g.region,
    MAX(b.end_ts) AS end_ts
  FROM scopes AS s
  JOIN floors AS g
    ON g.source = s.source
    AND g.scope = s.scope
    AND g.epoch = s.epoch
    AND s.generation < g.generation
  JOIN backups AS b
    ON s.backup_id = b.backup_id
  WHERE
    g.source = $source
    AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), g.scope)
    AND b.state = 'complete'
  GROUP BY
    g.scope,
    g.epoch,
    g.region
) AS o
  ON l.scope = o.scope AND l.epoch = o.epoch AND l.region = o.region
JOIN (
  SELECT
    t.scope,
    t.epoch,
    MIN(t.covers_to) AS covers_to
  FROM chain_points AS t
  WHERE
    t.source = $source
  GROUP BY
    t.scope,
    t.epoch
) AS k
  ON l.scope = k.scope AND l.epoch = k.epoch
WHERE
  l.source = $source
  AND TRY_CAST($to_ts AS BIGINT) <= o.end_ts
  AND TRY_CAST($to_ts AS BIGINT) < k.covers_to
ORDER BY
  scope NULLS FIRST,
  region NULLS FIRST

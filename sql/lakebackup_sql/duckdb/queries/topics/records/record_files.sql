-- 77aa517915b7f964 backups chain_points files positions scopes
WITH points AS (
  SELECT
    t.epoch,
    t.base,
    t.link,
    t.place,
    t.generation,
    t.settings,
    ROW_NUMBER() OVER (PARTITION BY t.epoch ORDER BY t.place DESC, t.number DESC) = 1 AS last
  FROM chain_points AS t
  WHERE
    t.source = $source
    AND t.scope = $scope
    AND (
      TRY_CAST($backup_id AS TEXT) IS NULL OR t.backup_id = $backup_id
    )
    AND (
      TRY_CAST($to_ts AS BIGINT) IS NULL
      OR (
        t.covers_from < TRY_CAST($to_ts AS BIGINT)
        AND TRY_CAST($to_ts AS BIGINT) <= t.covers_to
      )
    )
), chains AS (
  SELECT
    t.epoch,
    t.base,
    t.generation,
    MAX(t.link) AS link,
    MAX(t.place) AS place
  FROM points AS t
  JOIN points AS l
    ON t.epoch = l.epoch
    AND l.last
    AND (
      t.generation = l.generation
      OR NOT REGEXP_MATCHES(l.settings, '"cleanup.policy": "[^"]*compact')
    )
  GROUP BY
    t.epoch,
    t.base,
    t.generation
), newer AS (
  SELECT
    r.epoch,
    r.region,
    r.base,
    r.generation,
    MIN(r.start_position) OVER (
      PARTITION BY r.epoch, r.region
      ORDER BY r.place DESC
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS start_position
  FROM (
    SELECT
      p.epoch,
      p.region,
      c.base,
      c.generation,
      c.place,
      MIN(p.start_position) AS start_position
    FROM positions AS p
    JOIN scopes AS s
      ON p.backup_id = s.backup_id AND p.scope = s.scope AND p.epoch = s.epoch
    JOIN backups AS b
      ON p.backup_id = b.backup_id
    JOIN chains AS c
      ON p.epoch = c.epoch
      AND s.generation = c.generation
      AND b.base = c.base
      AND b.link <= c.link
      AND c.link < b.unlinked
    WHERE
      p.source = $source AND p.scope = $scope
    GROUP BY
      p.epoch,
      p.region,
      c.base,
      c.generation,
      c.place
  ) AS r
)
SELECT
  f.backup_id,
  f.source,
  f.scope,
  f.epoch,
  f.region,
  f.start_position,
  f.end_position,
  f.destination,
  f.path,
  f.format,
  f.codec,
  f.bytes,
  f.sha256,
  f.entries,
  f.null_keys,
  f.start_key,
  f.end_key,
  f.keys_path,
  f.keys_start,
  f.keys_blocks,
  LEAST(f.end_position, COALESCE(n.start_position, f.end_position)) AS to_position
FROM files AS f
JOIN backups AS b
  ON f.backup_id = b.backup_id
JOIN chains AS c
  ON f.epoch = c.epoch
  AND f.generation = c.generation
  AND b.base = c.base
  AND b.link <= c.link
  AND c.link < b.unlinked
LEFT JOIN newer AS n
  ON f.epoch = n.epoch
  AND f.region = n.region
  AND b.base = n.base
  AND f.generation = n.generation
WHERE
  f.source = $source
  AND f.scope = $scope
  AND f.role = 'data'
  AND b.state = 'complete'
  AND (
    n.start_position IS NULL OR f.start_position < n.start_position
  )
  AND (
    TRY_CAST($to_ts AS BIGINT) IS NULL OR f.min_ts <= TRY_CAST($to_ts AS BIGINT)
  )
  AND (
    TRY_CAST($least_ts AS BIGINT) IS NULL
    OR f.max_ts >= TRY_CAST($least_ts AS BIGINT)
  )
  AND (
    TRY_CAST($greatest_ts AS BIGINT) IS NULL
    OR f.min_ts <= TRY_CAST($greatest_ts AS BIGINT)
  )
  AND (
    TRY_CAST($least_position AS BIGINT) IS NULL
    OR f.end_position > TRY_CAST($least_position AS BIGINT)
  )
  AND (
    TRY_CAST($greatest_position AS BIGINT) IS NULL
    OR f.start_position <= TRY_CAST($greatest_position AS BIGINT)
  )
  AND (
    TRY_CAST($least_region AS BIGINT) IS NULL
    OR TRY_CAST(f.region AS BIGINT) >= TRY_CAST($least_region AS BIGINT)
  )
  AND (
    TRY_CAST($greatest_region AS BIGINT) IS NULL
    OR TRY_CAST(f.region AS BIGINT) <= TRY_CAST($greatest_region AS BIGINT)
  )
  AND (
    TRY_CAST($least_key AS TEXT) IS NULL
    OR (
      f.entries > f.null_keys
      AND (
        f.start_key IS NULL OR f.start_key <= $greatest_key
      )
      AND (
        f.end_key IS NULL OR f.end_key >= $least_key
      )
    )
  )
  AND (
    NOT TRY_CAST($only_null_keys AS BOOLEAN) OR f.null_keys > 0
  )
  AND (
    TRY_CAST($after_number AS BIGINT) IS NULL
    OR b.number > TRY_CAST($after_number AS BIGINT)
  )
  AND (
    TRY_CAST($first_path AS TEXT) IS NULL OR f.path >= TRY_CAST($first_path AS TEXT)
  )
  AND (
    TRY_CAST($end_path AS TEXT) IS NULL OR f.path < TRY_CAST($end_path AS TEXT)
  )
ORDER BY
  f.epoch NULLS FIRST,
  TRY_CAST(f.region AS BIGINT) NULLS FIRST,
  f.start_position NULLS FIRST,
  f.path NULLS FIRST

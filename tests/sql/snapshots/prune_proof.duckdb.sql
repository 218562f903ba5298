SELECT
  a.scope,
  a.epoch,
  a.region,
  a.base,
  a.number,
  a.needed,
  a.remaining,
  a.lost
FROM (
  SELECT
    f.scope,
    f.epoch,
    f.region,
    b.base,
    b.number,
    TRY_CAST(SUM(
      CASE
        WHEN c.region IS NULL
        OR (
          f.end_position > c.low_position AND f.generation >= c.generation
        )
        THEN 1
        ELSE 0
      END
    ) AS BIGINT) AS needed,
    TRY_CAST(SUM(CASE WHEN d.path IS NULL THEN 1 ELSE 0 END) AS BIGINT) AS remaining,
    TRY_CAST(SUM(
      CASE
        WHEN NOT d.path IS NULL
        AND (
          c.region IS NULL
          OR (
            f.end_position > c.low_position AND f.generation >= c.generation
          )
        )
        THEN 1
        ELSE 0
      END
    ) AS BIGINT) AS lost
  FROM files AS f
  JOIN backups AS b
    ON f.backup_id = b.backup_id
  JOIN (
    SELECT
      t.scope,
      t.epoch,
      t.base,
      t.generation,
      MAX(t.number) AS number
    FROM restore_points AS t
    WHERE
      t.source = $source
    GROUP BY
      t.scope,
      t.epoch,
      t.base,
      t.generation
  ) AS p
    ON f.scope = p.scope
    AND f.epoch = p.epoch
    AND f.generation = p.generation
    AND b.base = p.base
    AND b.number <= p.number
  LEFT JOIN doomed AS d
    ON f.destination = d.destination AND f.path = d.path
  LEFT JOIN cuts AS c
    ON f.scope = c.scope AND f.epoch = c.epoch AND f.region = c.region
  WHERE
    f.source = $source AND f.role = 'data' AND b.state = 'complete'
  GROUP BY
    f.scope,
    f.epoch,
    f.region,
    b.base,
    b.number
) AS a
WHERE
  a.needed <> a.remaining OR a.lost > 0
ORDER BY
  a.scope NULLS FIRST,
  a.epoch NULLS FIRST,
  a.region NULLS FIRST,
  a.number NULLS FIRST
LIMIT 10

-- b228ed8cd886c79c backups chain_points cuts doomed files leaving raw_scopes
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
    CAST(SUM(
      CASE
        WHEN c.region IS NULL
        OR (
          f.end_position > c.low_position AND f.generation >= c.generation
        )
        THEN 1
        ELSE 0
      END
    ) AS BIGINT) AS needed,
    CAST(SUM(CASE WHEN d.path IS NULL THEN 1 ELSE 0 END) AS BIGINT) AS remaining,
    CAST(SUM(
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
      s.backup_id,
      s.scope,
      s.epoch,
      s.generation,
      MIN(t.link) OVER (
        PARTITION BY s.scope, s.epoch, s.generation, c.base
        ORDER BY c.link DESC
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ) AS next
    FROM raw_scopes AS s
    JOIN backups AS c
      ON s.backup_id = c.backup_id
    LEFT JOIN (
      SELECT
        q.backup_id,
        q.scope,
        q.epoch,
        q.link
      FROM chain_points AS q
      ANTI JOIN leaving AS v
        ON q.backup_id = v.backup_id
    ) AS t
      ON s.backup_id = t.backup_id AND s.scope = t.scope AND s.epoch = t.epoch
    WHERE
      c.source = $source
  ) AS p
    ON f.backup_id = p.backup_id
    AND f.scope = p.scope
    AND f.epoch = p.epoch
    AND f.generation = p.generation
    AND p.next < b.unlinked
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

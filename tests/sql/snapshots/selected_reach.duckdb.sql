WITH chosen AS (
  SELECT
    f.source,
    f.scope,
    f.epoch,
    f.region,
    f.generation,
    b.base,
    f.destination,
    f.path
  FROM selected AS s
  JOIN files AS f
    ON s.destination = f.destination AND s.path = f.path
  JOIN backups AS b
    ON f.backup_id = b.backup_id
), places AS (
  SELECT DISTINCT
    source,
    scope,
    epoch,
    region,
    generation,
    base
  FROM chosen
), edges AS (
  SELECT
    p.source,
    p.scope,
    p.epoch,
    p.region,
    p.generation,
    p.base,
    MIN(CASE WHEN c.path IS NULL THEN b.number END) AS missing
  FROM places AS p
  JOIN files AS f
    ON p.source = f.source
    AND p.scope = f.scope
    AND p.epoch = f.epoch
    AND p.region = f.region
    AND p.generation = f.generation
  JOIN backups AS b
    ON f.backup_id = b.backup_id AND p.base = b.base AND b.state = 'complete'
  LEFT JOIN chosen AS c
    ON f.destination = c.destination AND f.path = c.path
  GROUP BY
    p.source,
    p.scope,
    p.epoch,
    p.region,
    p.generation,
    p.base
)
SELECT
  e.scope,
  e.epoch,
  e.region,
  MAX(t.covers_to) AS reaches
FROM edges AS e
LEFT JOIN restore_points AS t
  ON e.source = t.source
  AND e.scope = t.scope
  AND e.epoch = t.epoch
  AND e.generation = t.generation
  AND e.base = t.base
  AND (
    e.missing IS NULL OR t.number < e.missing
  )
GROUP BY
  e.scope,
  e.epoch,
  e.region
ORDER BY
  e.scope NULLS FIRST,
  e.epoch NULLS FIRST,
  e.region NULLS FIRST

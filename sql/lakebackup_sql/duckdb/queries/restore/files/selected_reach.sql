-- 5c95fef51844a18e backups files restore_points selected
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
  FROM files AS f
  JOIN selected AS s
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
), absent AS (
  SELECT DISTINCT
    p.source,
    p.scope,
    p.epoch,
    p.region,
    p.generation,
    p.base,
    b.link,
    b.unlinked
  FROM files AS f
  JOIN places AS p
    ON p.source = f.source
    AND p.scope = f.scope
    AND p.epoch = f.epoch
    AND p.region = f.region
    AND p.generation = f.generation
  JOIN backups AS b
    ON f.backup_id = b.backup_id AND p.base = b.base AND b.state = 'complete'
  ANTI JOIN chosen AS c
    ON f.destination = c.destination AND f.path = c.path
), reached AS (
  SELECT
    p.source,
    p.scope,
    p.epoch,
    p.region,
    t.covers_to
  FROM places AS p
  JOIN restore_points AS t
    ON p.source = t.source
    AND p.scope = t.scope
    AND p.epoch = t.epoch
    AND p.generation = t.generation
    AND p.base = t.base
  ANTI JOIN absent AS a
    ON p.source = a.source
    AND p.scope = a.scope
    AND p.epoch = a.epoch
    AND p.region = a.region
    AND p.generation = a.generation
    AND p.base = a.base
    AND a.link <= t.link
    AND t.link < a.unlinked
)
SELECT
  p.scope,
  p.epoch,
  p.region,
  MAX(r.covers_to) AS reaches
FROM places AS p
LEFT JOIN reached AS r
  ON p.source = r.source
  AND p.scope = r.scope
  AND p.epoch = r.epoch
  AND p.region = r.region
GROUP BY
  p.scope,
  p.epoch,
  p.region
ORDER BY
  p.scope NULLS FIRST,
  p.epoch NULLS FIRST,
  p.region NULLS FIRST

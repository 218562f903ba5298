-- b5abecd2ac759db2 backups files selected
WITH chosen AS (
  SELECT
    f.source,
    f.scope,
    f.epoch,
    f.region,
    f.generation,
    f.path,
    f.start_position,
    f.end_position,
    b.base,
    b.link,
    b.unlinked
  FROM selected AS f
  JOIN backups AS b
    ON f.backup_id = b.backup_id
), edges AS (
  SELECT
    source,
    scope,
    epoch,
    region,
    MIN(base) AS base,
    MIN(generation) AS generation,
    COUNT(DISTINCT base) AS bases,
    COUNT(DISTINCT generation) AS generations,
    COUNT(*) AS files,
    MAX(end_position) AS end_position,
    MAX(link) AS link,
    MIN(unlinked) AS unlinked
  FROM chosen
  GROUP BY
    source,
    scope,
    epoch,
    region
), held AS (
  SELECT
    e.scope,
    e.epoch,
    e.region,
    COUNT(*) AS files,
    MIN(f.start_position) AS start_position
  FROM files AS f
  JOIN edges AS e
    ON f.source = e.source
    AND f.scope = e.scope
    AND f.epoch = e.epoch
    AND f.region = e.region
    AND f.generation = e.generation
    AND f.start_position < e.end_position
  JOIN backups AS b
    ON f.backup_id = b.backup_id
    AND b.base = e.base
    AND b.state = 'complete'
    AND b.link <= e.link
    AND e.link < b.unlinked
  WHERE
    f.source = $source AND ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), f.scope)
  GROUP BY
    e.scope,
    e.epoch,
    e.region
)
SELECT
  e.scope,
  e.epoch,
  e.region,
  e.bases,
  e.generations,
  e.files AS chosen,
  h.files AS held,
  h.start_position,
  e.end_position
FROM edges AS e
LEFT JOIN held AS h
  ON e.scope = h.scope AND e.epoch = h.epoch AND e.region = h.region
WHERE
  e.bases > 1 OR e.generations > 1 OR e.unlinked <= e.link OR e.files < h.files
ORDER BY
  e.scope NULLS FIRST,
  e.region NULLS FIRST
LIMIT 100

-- Where a chosen set of files (relation selected) is not what a topic once held: files of the same chain and generation
-- left out before or between the chosen ones, or chosen files from chains or generations that hold the same offsets
-- twice. The files are of the topics :scopes (names separated by commas) of :source.
WITH chosen AS (
  SELECT
    f.source, f.scope, f.epoch, f.region, f.generation, f.path, f.start_position, f.end_position, b.base, b.link, b.unlinked
  FROM selected AS f
  JOIN backups AS b ON f.backup_id = b.backup_id
),
edges AS (
  SELECT
    source, scope, epoch, region,
    MIN(base) AS base,
    MIN(generation) AS generation,
    COUNT(DISTINCT base) AS bases,
    COUNT(DISTINCT generation) AS generations,
    COUNT(*) AS files,
    MAX(end_position) AS end_position,
    MAX(link) AS link,
    MIN(unlinked) AS unlinked
  FROM chosen
  GROUP BY source, scope, epoch, region
),
held AS (
  SELECT
    e.scope, e.epoch, e.region,
    COUNT(*) AS files,
    MIN(f.start_position) AS start_position
  FROM files AS f
  JOIN edges AS e
    ON f.source = e.source AND f.scope = e.scope AND f.epoch = e.epoch AND f.region = e.region
    AND f.generation = e.generation AND f.start_position < e.end_position
  JOIN backups AS b
    ON f.backup_id = b.backup_id AND b.base = e.base AND b.state = 'complete' AND b.link <= e.link
    AND e.link < b.unlinked
  WHERE f.source = :source
    AND ARRAY_CONTAINS(SPLIT(:scopes, ','), f.scope)
  GROUP BY e.scope, e.epoch, e.region
)
SELECT
  e.scope, e.epoch, e.region, e.bases, e.generations,
  e.files AS chosen,
  h.files AS held,
  h.start_position, e.end_position
FROM edges AS e
LEFT JOIN held AS h ON e.scope = h.scope AND e.epoch = h.epoch AND e.region = h.region
WHERE e.bases > 1 OR e.generations > 1 OR e.unlinked <= e.link OR e.files < h.files
ORDER BY e.scope, e.region
LIMIT 100

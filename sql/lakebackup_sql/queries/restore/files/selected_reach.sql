-- Which restore point the files chosen for a restore (relation selected) reach in each partition: the last one of their
-- chain and generation of which they leave nothing out; null when they hold none whole. They are of the topics :scopes
-- (names separated by commas) of :source.
WITH chosen AS (
  SELECT f.source, f.scope, f.epoch, f.region, f.generation, f.backup_id, b.base, COUNT(*) AS files
  FROM selected AS f
  JOIN backups AS b ON f.backup_id = b.backup_id
  GROUP BY f.source, f.scope, f.epoch, f.region, f.generation, f.backup_id, b.base
),
places AS (SELECT DISTINCT source, scope, epoch, region, generation, base FROM chosen),
held AS (
  SELECT f.source, f.scope, f.epoch, f.region, f.generation, f.backup_id, COUNT(*) AS files
  FROM files AS f
  WHERE f.source = :source
    AND ARRAY_CONTAINS(SPLIT(:scopes, ','), f.scope)
  GROUP BY f.source, f.scope, f.epoch, f.region, f.generation, f.backup_id
),
absent AS (
  SELECT p.source, p.scope, p.epoch, p.region, p.generation, p.base, b.link, b.unlinked
  FROM held AS h
  JOIN places AS p
    ON p.source = h.source AND p.scope = h.scope AND p.epoch = h.epoch AND p.region = h.region
    AND p.generation = h.generation
  JOIN backups AS b ON h.backup_id = b.backup_id AND p.base = b.base AND b.state = 'complete'
  LEFT JOIN chosen AS c
    ON h.source = c.source AND h.scope = c.scope AND h.epoch = c.epoch AND h.region = c.region
    AND h.generation = c.generation AND h.backup_id = c.backup_id
  WHERE h.files > COALESCE(c.files, 0)
),
reached AS (
  SELECT p.source, p.scope, p.epoch, p.region, t.covers_to
  FROM places AS p
  JOIN chain_points AS t
    ON p.source = t.source AND p.scope = t.scope AND p.epoch = t.epoch AND p.generation = t.generation
    AND p.base = t.base
  LEFT ANTI JOIN absent AS a
    ON p.source = a.source AND p.scope = a.scope AND p.epoch = a.epoch AND p.region = a.region
    AND p.generation = a.generation AND p.base = a.base AND a.link <= t.link AND t.link < a.unlinked
)
SELECT
  p.scope, p.epoch, p.region,
  MAX(r.covers_to) AS reaches
FROM places AS p
LEFT JOIN reached AS r ON p.source = r.source AND p.scope = r.scope AND p.epoch = r.epoch AND p.region = r.region
GROUP BY p.scope, p.epoch, p.region
ORDER BY p.scope, p.epoch, p.region

-- What restore points of the backups in the relation kept need of topics of :source: of each partition the files from
-- position on, and of each topic its generations from generation on. region and position null: no files.
WITH points AS (
  SELECT t.scope, t.epoch, t.generation, t.backup_id, t.base, t.link
  FROM chain_points AS t
  JOIN kept AS k ON t.backup_id = k.backup_id
  WHERE t.source = :source
),
-- What each backup added to a topic, and the first kept restore point that it may be part of.
added AS (
  SELECT
    s.backup_id, s.scope, s.epoch, s.generation,
    MIN(p.link) OVER (
      PARTITION BY s.scope, s.epoch, s.generation, b.base ORDER BY b.link DESC
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS next
  FROM raw_scopes AS s
  JOIN backups AS b ON s.backup_id = b.backup_id
  LEFT JOIN points AS p ON s.backup_id = p.backup_id AND s.scope = p.scope AND s.epoch = p.epoch
  WHERE s.source = :source
)
SELECT g.scope, g.epoch, n.region, g.generation, n.position
FROM (
  SELECT p.scope, p.epoch, MIN(p.generation) AS generation FROM points AS p GROUP BY p.scope, p.epoch
) AS g
LEFT JOIN (
  SELECT f.scope, f.epoch, f.region, MIN(f.start_position) AS position
  FROM files AS f
  JOIN backups AS b ON f.backup_id = b.backup_id
  JOIN added AS a
    ON f.backup_id = a.backup_id AND f.scope = a.scope AND f.epoch = a.epoch AND f.generation = a.generation
    AND a.next < b.unlinked
  WHERE f.source = :source
    AND f.role = 'data'
    AND b.state = 'complete'
  GROUP BY f.scope, f.epoch, f.region
) AS n ON g.scope = n.scope AND g.epoch = n.epoch
ORDER BY g.scope, g.epoch, n.region

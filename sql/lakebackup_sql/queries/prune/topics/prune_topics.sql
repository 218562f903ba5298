-- Each topic of a source, and each earlier one of its name, as its newest restore point has it.
SELECT p.source, p.scope, p.epoch, p.base, p.link, p.generation, p.settings, p.covers_to
FROM (
  SELECT
    t.source, t.scope, t.epoch, t.base, t.link, t.generation, t.settings, t.covers_to,
    ROW_NUMBER() OVER (PARTITION BY t.source, t.scope, t.epoch ORDER BY t.place DESC, t.number DESC) AS nth
  FROM chain_points AS t
  WHERE t.source = :source
) AS p
WHERE p.nth = 1
ORDER BY p.scope, p.epoch

SELECT
  p.source,
  p.scope,
  p.epoch,
  p.base,
  p.generation,
  p.settings,
  p.covers_to,
  p.present
FROM (
  SELECT
    t.source,
    t.scope,
    t.epoch,
    t.base,
    t.generation,
    t.settings,
    t.covers_to,
    t.number = MAX(t.number) OVER (PARTITION BY t.source) AS present,
    ROW_NUMBER() OVER (PARTITION BY t.source, t.scope, t.epoch ORDER BY t.number DESC) AS place
  FROM restore_points AS t
  WHERE
    t.source = $source
) AS p
WHERE
  p.place = 1
ORDER BY
  p.scope NULLS FIRST,
  p.epoch NULLS FIRST

-- The topics of each source, at most :most, those first that are worst off: until when all their partitions can be
-- restored, and in how many intervals not (`covered`); `all_rows`: how many topics the source has.
SELECT p.source, p.scope, p.present, p.restorable_ts, p.covered_ts, p.regions, p.gaps, p.forks, p.all_rows
FROM (
  SELECT
    t.source, t.scope, t.present, t.restorable_ts, t.covered_ts,
    COALESCE(c.regions, 0) AS regions,
    COALESCE(c.gaps, 0) AS gaps,
    COALESCE(c.forks, 0) AS forks,
    ROW_NUMBER() OVER (
      PARTITION BY t.source ORDER BY t.present DESC, t.restorable_ts, COALESCE(c.gaps, 0) DESC, t.scope
    ) AS place,
    COUNT(*) OVER (PARTITION BY t.source) AS all_rows
  FROM protected AS t
  LEFT JOIN (
    SELECT
      source, scope,
      COUNT(DISTINCT region) AS regions,
      COUNT(DISTINCT CASE WHEN status = 'gap' THEN to_ts END) AS gaps,
      COUNT(DISTINCT CASE WHEN status = 'fork' THEN to_ts END) AS forks
    FROM covered
    GROUP BY source, scope
  ) AS c ON t.source = c.source AND t.scope = c.scope
) AS p
WHERE p.place <= :most
ORDER BY p.source, p.place

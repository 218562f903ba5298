-- c015d980f5fe23cd backups last_success protected
SELECT
  b.source,
  b.backups,
  b.chains,
  t.topics,
  t.gone,
  l.finished_at,
  l.full_at,
  CASE WHEN t.topics = t.restorable THEN t.restorable_ts END AS restorable_ts,
  t.topics - t.restorable AS lost
FROM (
  SELECT
    source,
    COUNT(*) AS backups,
    COUNT(DISTINCT base) AS chains
  FROM backups
  WHERE
    state <> 'deleted'
  GROUP BY
    source
) AS b
LEFT JOIN (
  SELECT
    source,
    MAX(finished_at) AS finished_at,
    MAX(CASE WHEN kind = 'full' THEN finished_at END) AS full_at
  FROM last_success
  GROUP BY
    source
) AS l
  ON b.source = l.source
LEFT JOIN (
  SELECT
    source,
    COUNT(CASE WHEN present THEN 1 END) AS topics,
    COUNT(CASE WHEN NOT present THEN 1 END) AS gone,
    COUNT(CASE WHEN present THEN restorable_ts END) AS restorable,
    MIN(CASE WHEN present THEN restorable_ts END) AS restorable_ts
  FROM protected
  GROUP BY
    source
) AS t
  ON b.source = t.source
ORDER BY
  b.source NULLS FIRST

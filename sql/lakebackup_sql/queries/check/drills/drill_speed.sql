-- How long a restore of :bytes bytes of :source may take, in ms: at the speed of the newest three drills and finished
-- restores of it, else of those of all sources. No row: there was none.
WITH finished AS (
  SELECT
    r.restore_id, r.source,
    COALESCE(
      SUM(CASE WHEN r.state = 'region_done' THEN r.bytes END),
      MAX(CASE WHEN r.state = 'complete' THEN r.bytes END)
    ) AS bytes,
    MAX(CASE WHEN r.state = 'complete' THEN r.at END) AS finished_at,
    MAX(CASE WHEN r.state = 'running' AND r.scope IS NULL THEN r.at END) AS started_at
  FROM raw_restores AS r
  -- A drill's own restore is in the row of the drill.
  WHERE r.target NOT LIKE '%/lakebackup-drill-%'
  GROUP BY r.restore_id, r.source
),
done AS (
  SELECT d.source, d.at, d.bytes, d.real_ms AS ms FROM raw_drills AS d WHERE d.real_ms IS NOT NULL AND d.bytes > 0
  UNION ALL
  SELECT f.source, f.started_at AS at, f.bytes, (f.finished_at - f.started_at) DIV 1000 AS ms
  FROM finished AS f
  WHERE f.bytes > 0 AND f.finished_at > f.started_at
)
SELECT CAST(ROUND(CAST(:bytes AS DOUBLE) * SUM(n.ms) / SUM(n.bytes)) AS BIGINT) AS predicted_ms
FROM (
  SELECT e.*, ROW_NUMBER() OVER (PARTITION BY e.other ORDER BY e.at DESC) AS nth
  FROM (SELECT d.*, CASE WHEN d.source = :source THEN 0 ELSE 1 END AS other FROM done AS d) AS e
) AS n
WHERE n.nth <= 3
GROUP BY n.other
ORDER BY n.other
LIMIT 1

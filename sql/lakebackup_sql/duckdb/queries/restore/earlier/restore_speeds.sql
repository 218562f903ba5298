-- 6114c4aaffc4e587 raw_restores
SELECT
  f.restore_id,
  f.bytes,
  f.finished_at - f.started_at AS micros
FROM (
  SELECT
    r.restore_id,
    CAST(SUM(CASE WHEN r.state = 'region_done' THEN r.bytes END) AS BIGINT) AS bytes,
    MAX(CASE WHEN r.state = 'complete' THEN r."at" END) AS finished_at,
    MAX(CASE WHEN r.state = 'running' AND r.scope IS NULL THEN r."at" END) AS started_at
  FROM raw_restores AS r
  WHERE
    r.target LIKE $target || '%'
  GROUP BY
    r.restore_id
) AS f
WHERE
  f.bytes > 0 AND f.finished_at > f.started_at
ORDER BY
  f.finished_at DESC
LIMIT 20

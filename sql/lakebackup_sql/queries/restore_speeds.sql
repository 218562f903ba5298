-- How fast the newest finished restores into targets that begin with :target were: bytes and microseconds.
SELECT
  r.restore_id,
  CAST(SUM(CASE WHEN r.state = 'region_done' THEN r.bytes END) AS BIGINT) AS bytes,
  MAX(CASE WHEN r.state = 'complete' THEN r.at END)
    - MAX(CASE WHEN r.state = 'running' AND r.scope IS NULL THEN r.at END) AS micros
FROM raw_restores AS r
WHERE r.target LIKE CONCAT(:target, '%')
GROUP BY r.restore_id
HAVING MAX(CASE WHEN r.state = 'complete' THEN r.at END) IS NOT NULL
  AND SUM(CASE WHEN r.state = 'region_done' THEN r.bytes END) > 0
ORDER BY MAX(r.at) DESC
LIMIT 20

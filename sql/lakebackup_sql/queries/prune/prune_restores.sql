-- Restores of a source that began and did not finish.
SELECT
  r.restore_id,
  r.state,
  r.at,
  r.detail
FROM (
  SELECT
    w.restore_id, w.state, w.at, w.detail,
    ROW_NUMBER() OVER (PARTITION BY w.restore_id ORDER BY w.at DESC) AS place
  FROM restores AS w
  WHERE w.scope IS NULL
    AND w.source = :source
) AS r
WHERE r.place = 1 AND r.state IN ('running', 'failed')
ORDER BY r.at

-- 7353544fd32e3b99 coverage uncounted
SELECT
  c.source,
  c.scope,
  c.epoch,
  c.region,
  CASE c.reason
    WHEN 'pruned'
    THEN 'pruned'
    WHEN 'compacted'
    THEN 'approximate'
    ELSE c.status
  END AS status,
  c.reason,
  COALESCE(EPOCH_MS(c.from_time), c.from_ts) AS from_ts,
  COALESCE(EPOCH_MS(c.to_time), c.to_ts) AS to_ts,
  c.from_position,
  c.to_position
FROM coverage AS c
ANTI JOIN uncounted AS u
  ON c.source = u.source AND c.scope = u.scope
ORDER BY
  c.source NULLS FIRST,
  c.scope NULLS FIRST,
  c.region NULLS FIRST,
  c.to_ts NULLS FIRST

-- One row per partition of a pruned topic: from which position and generation on it can still be restored.
-- low_position: first position that can still be restored
-- generation: first generation that can still be restored
-- at: when the newest prune raised them, microseconds since 1970 UTC
-- time: at, in UTC
SELECT
  source, scope, epoch, region,
  max(low_position) AS low_position,
  max(generation) AS generation,
  max(at) AS at,
  timestamp_micros(max(at)) AS time
FROM raw_floors
GROUP BY source, scope, epoch, region

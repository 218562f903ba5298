-- From where on the partitions of pruned topics can still be restored.
SELECT
  source, scope, epoch, region,
  max(low_position) AS low_position,
  max(generation) AS generation,
  max(at) AS at,
  timestamp_micros(max(at)) AS time
FROM raw_floors
GROUP BY source, scope, epoch, region

-- One row per pruned topic: which generation is the first that can still be restored.
-- generation: the highest floor of its partitions
SELECT source, scope, epoch, MAX(generation) AS generation
FROM raw_floors
GROUP BY source, scope, epoch

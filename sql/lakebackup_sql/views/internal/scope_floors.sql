-- The first generation of each topic that can still be restored.
-- generation: the highest of its partitions' floors
SELECT source, scope, epoch, MAX(generation) AS generation
FROM raw_floors
GROUP BY source, scope, epoch

-- The state of one restore, per topic and partition.
SELECT * FROM restores WHERE restore_id = :restore_id
ORDER BY scope NULLS FIRST, CAST(region AS BIGINT) NULLS FIRST

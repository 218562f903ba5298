-- The newest record of each key of a partition (relation record_rows). digest: of its value, '' for a tombstone.
SELECT
  r.partition, r.key_hex,
  MAX(r.key) AS key,
  MAX_BY(r.value_digest, r.kafka_offset) AS digest,
  MAX(r.kafka_offset) AS kafka_offset
FROM record_rows AS r
WHERE r.key_hex IS NOT NULL
GROUP BY r.partition, r.key_hex

-- dd9d94bfd0cfb3be record_rows
SELECT
  r.partition,
  r.key_hex,
  MAX(r.key) AS key,
  ARG_MAX(r.value_digest, r.kafka_offset) AS digest,
  MAX(r.kafka_offset) AS kafka_offset
FROM record_rows AS r
WHERE
  NOT r.key_hex IS NULL
GROUP BY
  r.partition,
  r.key_hex

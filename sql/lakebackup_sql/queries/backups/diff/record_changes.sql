-- The keys of topic :scope whose value is another in newest_b than in newest_a (rows of record_newest), a tombstone
-- being none. :continued: newest_b has only what came after newest_a, and other keys stay.
SELECT
  :scope AS scope,
  COALESCE(b.partition, a.partition) AS partition,
  COALESCE(b.key, a.key) AS key,
  COALESCE(b.key_hex, a.key_hex) AS key_hex,
  CASE
    WHEN COALESCE(a.digest, '') = '' THEN 'added'
    WHEN COALESCE(b.digest, '') = '' THEN 'gone'
    ELSE 'changed'
  END AS change,
  a.kafka_offset AS old_offset,
  b.kafka_offset AS new_offset
FROM newest_a AS a
FULL OUTER JOIN newest_b AS b ON a.partition = b.partition AND a.key_hex = b.key_hex
WHERE COALESCE(a.digest, '') <> COALESCE(b.digest, '')
  AND (NOT CAST(:continued AS BOOLEAN) OR b.key_hex IS NOT NULL)

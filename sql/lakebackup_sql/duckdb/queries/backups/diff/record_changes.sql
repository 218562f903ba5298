-- 45da438d0670e8ef newest_a newest_b
SELECT
  $scope AS scope,
  COALESCE(b.partition, a.partition) AS partition,
  COALESCE(b.key, a.key) AS key,
  COALESCE(b.key_hex, a.key_hex) AS key_hex,
  CASE
    WHEN COALESCE(a.digest, '') = ''
    THEN 'added'
    WHEN COALESCE(b.digest, '') = ''
    THEN 'gone'
    ELSE 'changed'
  END AS change,
  a.kafka_offset AS old_offset,
  b.kafka_offset AS new_offset
FROM newest_a AS a
FULL OUTER JOIN newest_b AS b
  ON a.partition = b.partition AND a.key_hex = b.key_hex
WHERE
  COALESCE(a.digest, '') <> COALESCE(b.digest, '')
  AND (
    NOT TRY_CAST($continued AS BOOLEAN) OR NOT b.key_hex IS NULL
  )

-- Per partition of a source's topics (:scopes: names separated by commas; null: all), of backups with a number from
-- :since on: the first sequence number that no file row has, whatever became of its backup (an object without a row may
-- still have it: the conditional put decides), and the bytes and records of its newest file.
SELECT
  scope, epoch, region,
  max(CAST(regexp_extract(path, '-([0-9]+)[.]data$', 1) AS BIGINT)) + 1 AS next_sequence,
  max_by(raw_bytes, added_in) AS raw_bytes,
  max_by(entries, added_in) AS entries
FROM raw_files
WHERE source = :source AND role = 'data' AND added_in >= :since
  AND (CAST(:scopes AS STRING) IS NULL OR ARRAY_CONTAINS(SPLIT(:scopes, ','), scope))
GROUP BY scope, epoch, region
ORDER BY scope, epoch, CAST(region AS BIGINT)

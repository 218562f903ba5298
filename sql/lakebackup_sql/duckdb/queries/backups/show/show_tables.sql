-- d379223e6a724b15 snapshot_files
SELECT
  f.scope,
  COUNT(DISTINCT f.region) AS regions,
  COUNT(*) AS files,
  CAST(SUM(f.bytes) AS BIGINT) AS bytes,
  COUNT(CASE WHEN f.added_in = $number THEN 1 END) AS new_files,
  CAST(SUM(CASE WHEN f.added_in = $number THEN f.bytes ELSE 0 END) AS BIGINT) AS new_bytes
FROM snapshot_files AS f
WHERE
  f.source = $source
  AND f.added_in <= $number
  AND COALESCE(f.gone_in > $number, TRUE)
GROUP BY
  f.scope
ORDER BY
  f.scope NULLS FIRST

-- 83bbb328c63b8b9b snapshot_files
SELECT
  f.scope,
  f.region,
  f.name,
  f.role,
  f.bytes,
  f.mtime_ms,
  f.mode,
  f.links,
  f.sha256,
  f.destination,
  f.path,
  f.position
FROM snapshot_files AS f
WHERE
  f.source = $source
  AND f.added_in <= $number
  AND COALESCE(f.gone_in > $number, TRUE)
ORDER BY
  f.scope NULLS FIRST,
  f.region NULLS FIRST,
  f.name NULLS FIRST

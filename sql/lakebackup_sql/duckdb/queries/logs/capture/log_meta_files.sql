-- 7f91c5720d166aac departures files
SELECT
  f.destination,
  f.path,
  f.codec,
  f.key_id,
  f.bytes,
  f.sha256,
  f.entries,
  f.cf,
  f.max_ts,
  f.min_begin_ts
FROM files AS f
ANTI JOIN departures AS d
  ON f.destination = d.destination AND f.path = d.path
WHERE
  f.source = $source
  AND f.format = 'log-arrow-1'
  AND f.role = 'schema'
  AND f.op = 'put'
  AND f.cf = $cf
  AND f.max_ts >= $least_ts
ORDER BY
  f.path NULLS FIRST

-- f1d14c2e63620b8f selected
SELECT
  f.scope,
  f.epoch,
  f.region,
  f.start_position,
  f.end_position,
  f.destination,
  f.path,
  f.format,
  f.codec,
  f.bytes,
  f.sha256,
  f.entries
FROM selected AS f
ORDER BY
  f.scope NULLS FIRST,
  f.epoch NULLS FIRST,
  f.region NULLS FIRST,
  f.start_position NULLS FIRST,
  f.path NULLS FIRST

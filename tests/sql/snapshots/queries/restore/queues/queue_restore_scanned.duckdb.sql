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
  f.entries,
  f.link
FROM selected AS f
WHERE
  f.link > TRY_CAST($link AS BIGINT)
ORDER BY
  f.scope NULLS FIRST,
  f.region NULLS FIRST,
  f.link NULLS FIRST,
  f.start_position NULLS FIRST,
  f.path NULLS FIRST

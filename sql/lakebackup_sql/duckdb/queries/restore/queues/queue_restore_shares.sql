-- b1baecb28b2ab572 selected
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
  TRY_CAST($link AS BIGINT) IS NULL OR f.link > TRY_CAST($link AS BIGINT)
ORDER BY
  f.scope NULLS FIRST,
  TRY_CAST(f.region AS BIGINT) NULLS FIRST,
  f.link NULLS FIRST,
  f.start_position NULLS FIRST,
  f.path NULLS FIRST

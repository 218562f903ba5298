-- f8cda4b314238fe7 selected
SELECT
  f.destination,
  f.path,
  f.scope,
  f.codec,
  f.key_id,
  f.bytes,
  f.raw_bytes,
  f.sha256,
  f.entries,
  f.start_key,
  f.cf
FROM selected AS f
WHERE
  f.cf = $cf AND (
    NOT $ends OR f.start_key = ''
  )
ORDER BY
  f.scope NULLS FIRST,
  f.path NULLS FIRST

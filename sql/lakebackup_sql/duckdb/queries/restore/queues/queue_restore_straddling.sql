-- 039fcfebd31ec8ff selected
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
  f.link,
  f.min_tid
FROM selected AS f
WHERE
  f.min_ts <= TRY_CAST($to_ts AS BIGINT)
  AND TRY_CAST($to_ts AS BIGINT) < f.max_ts
  AND (
    TRY_CAST($tid AS BIGINT) IS NULL
    OR f.min_tid IS NULL
    OR f.min_tid < TRY_CAST($tid AS BIGINT)
  )
ORDER BY
  f.min_tid NULLS FIRST,
  f.path NULLS FIRST

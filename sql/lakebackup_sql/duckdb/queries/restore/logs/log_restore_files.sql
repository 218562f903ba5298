-- 1b67fece45546e5e departures files
WITH own AS (
  SELECT
    f.*
  FROM files AS f
  ANTI JOIN departures AS d
    ON f.destination = d.destination AND f.path = d.path
  ANTI JOIN (
    SELECT
      UNNEST(TRY_CAST($without AS TEXT[])) AS scope
  ) AS x
    ON f.scope = x.scope
  WHERE
    f.source = $source
    AND f.format = 'log-arrow-1'
    AND f.role = 'data'
    AND f.op = 'put'
    AND f.min_ts <= $end_ts
    AND (
      TRY_CAST($tables AS TEXT[]) IS NULL
      OR f.scope IN (
        SELECT
          UNNEST(TRY_CAST($tables AS TEXT[]))
      )
    )
    AND (
      f.start_key IS NULL
      OR f.start_key = ''
      OR (
        (
          TRY_CAST($first_key AS TEXT) IS NULL
          OR f.end_key IS NULL
          OR f.end_key >= $first_key
        )
        AND (
          TRY_CAST($beyond_key AS TEXT) IS NULL OR f.start_key < $beyond_key
        )
      )
    )
), shift AS (
  SELECT
    MIN(w.min_begin_ts) AS ts
  FROM own AS w
  WHERE
    w.cf = 'write' AND w.max_ts > $start_ts
)
SELECT
  o.source,
  o.destination,
  o.path,
  o.backup_id,
  o.scope,
  o.epoch,
  o.region,
  o.format,
  o.codec,
  o.key_id,
  o.bytes,
  o.raw_bytes,
  o.sha256,
  o.entries,
  o.min_ts,
  o.max_ts,
  o.min_begin_ts,
  o.start_key,
  o.cf
FROM own AS o
CROSS JOIN shift AS s
WHERE
  (
    o.cf = 'write' AND o.max_ts > $start_ts
  )
  OR (
    o.cf = 'default' AND o.max_ts >= s.ts
  )

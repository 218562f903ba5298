-- 55876e0414f57752 departures files holds leaving
WITH own AS (
  SELECT
    f.*,
    NOT d.path IS NULL AS replaced
  FROM files AS f
  ANTI JOIN holds AS h
    ON f.backup_id = h.backup_id
  LEFT JOIN departures AS d
    ON f.destination = d.destination AND f.path = d.path
  WHERE
    f.source = $source AND f.format = 'log-arrow-1'
), begins AS (
  SELECT
    LEAST(COALESCE(MIN(w.min_begin_ts), $cut), $cut) AS ts
  FROM files AS w
  ANTI JOIN departures AS d
    ON w.destination = d.destination AND w.path = d.path
  WHERE
    w.source = $source AND w.cf = 'write' AND w.max_ts >= $cut
)
SELECT
  $prune_id AS prune_id,
  TRY_CAST($at AS BIGINT) AS "at",
  o.source,
  o.destination,
  o.path,
  o.backup_id,
  o.scope,
  o.epoch,
  o.region,
  o.bytes,
  CASE WHEN o.replaced THEN 'compacted' ELSE 'until' END AS reason
FROM own AS o
CROSS JOIN begins AS s
WHERE
  o.replaced
  OR (
    o.cf = 'write' AND o.max_ts < $cut
  )
  OR (
    o.cf = 'default' AND o.max_ts < s.ts
  )
UNION ALL
SELECT
  $prune_id AS prune_id,
  TRY_CAST($at AS BIGINT) AS "at",
  w.source,
  w.destination,
  w.path,
  w.backup_id,
  w.scope,
  w.epoch,
  w.region,
  w.bytes,
  v.reason
FROM files AS w
JOIN leaving AS v
  ON w.backup_id = v.backup_id

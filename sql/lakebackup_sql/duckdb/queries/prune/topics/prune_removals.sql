-- d91d7a349ba906ae cuts files leaving
SELECT
  $prune_id AS prune_id,
  TRY_CAST($at AS BIGINT) AS "at",
  f.source,
  f.destination,
  f.path,
  f.backup_id,
  f.scope,
  f.epoch,
  f.region,
  f.bytes,
  CASE
    WHEN f.generation < c.generation
    THEN 'generation'
    WHEN f.end_position <= c.time_floor
    THEN 'time'
    ELSE 'size'
  END AS reason
FROM files AS f
JOIN cuts AS c
  ON f.source = c.source
  AND f.scope = c.scope
  AND f.epoch = c.epoch
  AND f.region = c.region
ANTI JOIN leaving AS v
  ON f.backup_id = v.backup_id
WHERE
  f.role = 'data'
  AND (
    f.generation < c.generation OR f.end_position <= c.low_position
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
WHERE
  NOT w.format IN ('queue-points', 'queue-positions', 'queue-transactions', 'queue-schemas')

-- 043b96b161a8983b gaps translations wanted
WITH known AS (
  SELECT
    t.*
  FROM translations AS t
  WHERE
    t.source = $source
    AND t.cluster = $cluster
    AND ARRAY_CONTAINS(STR_SPLIT_REGEX($targets, ','), t.scope || '=' || t.target_epoch)
), histories AS (
  SELECT
    scope,
    MIN(epoch) AS epoch,
    COUNT(DISTINCT epoch) AS epochs
  FROM known
  GROUP BY
    scope
), asked AS (
  SELECT
    w.group_id,
    w.scope,
    w.region,
    w.position,
    w.metadata,
    w.ts,
    h.epochs,
    CASE
      WHEN w.epoch IS NULL AND w.seen = 'log' AND h.epochs = 1
      THEN h.epoch
      ELSE w.epoch
    END AS epoch
  FROM wanted AS w
  LEFT JOIN histories AS h
    ON w.scope = h.scope
), bounds AS (
  SELECT
    k.scope,
    k.epoch,
    k.region,
    k.target_scope,
    k.target_region,
    k.from_position,
    k.first_position,
    k.to_position,
    k.target_position,
    ROW_NUMBER() OVER (
      PARTITION BY k.scope, k.epoch, k.region
      ORDER BY k.from_position NULLS FIRST, k."at" DESC, k.to_position DESC
    ) AS from_start,
    ROW_NUMBER() OVER (
      PARTITION BY k.scope, k.epoch, k.region
      ORDER BY k.to_position DESC, k."at" DESC, k.from_position DESC
    ) AS from_end
  FROM known AS k
), hits AS (
  SELECT
    a.group_id,
    k.scope,
    k.epoch,
    k.region,
    k.target_scope,
    k.target_region,
    k.first_position,
    k.target_position,
    ROW_NUMBER() OVER (
      PARTITION BY a.group_id, k.scope, k.epoch, k.region
      ORDER BY k."at" DESC, k.from_position DESC
    ) AS place
  FROM asked AS a
  JOIN known AS k
    ON a.scope = k.scope
    AND a.epoch = k.epoch
    AND a.region = k.region
    AND k.from_position <= a.position
    AND a.position < k.to_position
), lost AS (
  SELECT DISTINCT
    a.group_id,
    a.scope,
    a.epoch,
    a.region
  FROM asked AS a
  JOIN gaps AS g
    ON g.source = $source
    AND a.scope = g.scope
    AND a.epoch = g.epoch
    AND a.region = g.region
    AND g.from_position <= a.position
    AND a.position < g.to_position
)
SELECT
  a.group_id,
  a.scope,
  a.epoch,
  a.region,
  a.position,
  a.metadata,
  a.ts,
  COALESCE(h.target_scope, e.target_scope) AS target_scope,
  COALESCE(h.target_region, e.target_region) AS target_region,
  CASE
    WHEN h.target_position >= 0
    THEN h.target_position + GREATEST(0, a.position - h.first_position)
    WHEN NOT h.group_id IS NULL
    THEN NULL
    WHEN a.position >= e.to_position AND e.target_position >= 0
    THEN e.target_position
    WHEN a.position < s.from_position AND s.target_position >= 0
    THEN s.target_position
  END AS target_position,
  CASE
    WHEN a.epochs IS NULL
    THEN 'not_restored'
    WHEN a.epoch IS NULL
    THEN 'topic_deleted'
    WHEN e.scope IS NULL AND o.scope IS NULL
    THEN 'topic_deleted'
    WHEN e.scope IS NULL
    THEN 'not_restored'
    WHEN h.target_position < 0
    THEN 'unknown'
    WHEN NOT h.group_id IS NULL AND h.first_position > a.position AND NOT l.scope IS NULL
    THEN 'in_gap'
    WHEN NOT h.group_id IS NULL
    THEN 'moved'
    WHEN a.position >= e.to_position AND e.target_position < 0
    THEN 'unknown'
    WHEN a.position > e.to_position
    THEN 'at_end'
    WHEN a.position = e.to_position
    THEN 'moved'
    WHEN a.position < s.from_position AND s.target_position >= 0
    THEN 'in_gap'
    ELSE 'unknown'
  END AS outcome,
  CASE
    WHEN NOT h.group_id IS NULL
    THEN GREATEST(0, h.first_position - a.position)
    WHEN a.position >= e.to_position
    THEN a.position - e.to_position
    WHEN a.position < s.from_position
    THEN s.first_position - a.position
  END AS offsets
FROM asked AS a
LEFT JOIN hits AS h
  ON a.group_id = h.group_id
  AND a.scope = h.scope
  AND a.epoch = h.epoch
  AND a.region = h.region
  AND h.place = 1
LEFT JOIN bounds AS s
  ON a.scope = s.scope
  AND a.epoch = s.epoch
  AND a.region = s.region
  AND s.from_start = 1
LEFT JOIN bounds AS e
  ON a.scope = e.scope AND a.epoch = e.epoch AND a.region = e.region AND e.from_end = 1
LEFT JOIN (
  SELECT DISTINCT
    scope,
    epoch
  FROM known
) AS o
  ON a.scope = o.scope AND a.epoch = o.epoch
LEFT JOIN lost AS l
  ON a.group_id = l.group_id
  AND a.scope = l.scope
  AND a.epoch = l.epoch
  AND a.region = l.region
ORDER BY
  a.group_id NULLS FIRST,
  a.scope NULLS FIRST,
  TRY_CAST(a.region AS BIGINT) NULLS FIRST

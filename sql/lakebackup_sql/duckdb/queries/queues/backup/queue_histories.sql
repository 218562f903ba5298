-- e9a085d3a3ef5240 parents raw_queue_restores raw_scopes
SELECT
  COALESCE(h.scope, r.scope) AS scope,
  COALESCE(h.epoch, r.epoch) AS epoch,
  h.backup_id,
  h.number,
  h.started_at,
  h.full_id,
  h.full_number,
  h.full_started_at,
  r.restore_id,
  r.restored_at,
  r.restored_id,
  r.restored_full_id,
  r.whole,
  r.restored_tid
FROM (
  SELECT
    s.scope,
    s.epoch,
    ARG_MAX(b.backup_id, b.number) AS backup_id,
    MAX(b.number) AS number,
    ARG_MAX(b.started_at, b.number) AS started_at,
    ARG_MAX(
      CASE WHEN b.kind = 'full' THEN b.backup_id END,
      CASE WHEN b.kind = 'full' THEN b.number END
    ) AS full_id,
    MAX(CASE WHEN b.kind = 'full' THEN b.number END) AS full_number,
    ARG_MAX(
      CASE WHEN b.kind = 'full' THEN b.started_at END,
      CASE WHEN b.kind = 'full' THEN b.number END
    ) AS full_started_at
  FROM raw_scopes AS s
  JOIN parents AS b
    ON s.backup_id = b.backup_id
  WHERE
    s.source = $source AND b.source = $source AND b.reason IS NULL
  GROUP BY
    s.scope,
    s.epoch
) AS h
FULL JOIN (
  SELECT
    q.scope,
    q.epoch,
    ARG_MAX(q.restore_id, q."at") AS restore_id,
    MAX(q."at") AS restored_at,
    ARG_MAX(q.backup_id, q."at") AS restored_id,
    ARG_MAX(q.full_id, q."at") AS restored_full_id,
    ARG_MAX(q.whole, q."at") AS whole,
    ARG_MAX(q.last_tid, q."at") AS restored_tid
  FROM raw_queue_restores AS q
  WHERE
    q.source = $source AND q.cluster = $cluster
  GROUP BY
    q.scope,
    q.epoch
) AS r
  ON h.scope = r.scope AND h.epoch = r.epoch
ORDER BY
  scope NULLS FIRST,
  epoch NULLS FIRST

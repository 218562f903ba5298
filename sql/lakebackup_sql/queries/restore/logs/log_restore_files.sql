-- The log files of the change feed :source that hold what was committed in (:start_ts, :end_ts]: writes by their commit
-- ts; and values that are stored apart from them, from the least start ts that a chosen file of writes names, since a
-- transaction writes its values before it commits. Of the tables :tables (null: all but those in :without), and of keys
-- in [:first_key, :beyond_key) (lower hex; null: no bound); a file that begins with the empty key may hold the end of a
-- whole table: such files of writes come before the others. What was deleted below writes (rollbacks, garbage collection) changes no committed value.
WITH own AS (
  SELECT f.*
  FROM files AS f
  LEFT ANTI JOIN departures AS d ON f.destination = d.destination AND f.path = d.path
  LEFT ANTI JOIN (SELECT EXPLODE(CAST(:without AS ARRAY<STRING>)) AS scope) AS x ON f.scope = x.scope
  WHERE f.source = :source
    AND f.format = 'log-arrow-1'
    AND f.role = 'data'
    AND f.op = 'put'
    AND f.min_ts <= :end_ts
    AND (
      CAST(:tables AS ARRAY<STRING>) IS NULL
      OR f.scope IN (SELECT EXPLODE(CAST(:tables AS ARRAY<STRING>)))
    )
    AND (
      f.start_key IS NULL
      OR f.start_key = ''
      OR (
        (CAST(:first_key AS STRING) IS NULL OR f.end_key IS NULL OR f.end_key >= :first_key)
        AND (CAST(:beyond_key AS STRING) IS NULL OR f.start_key < :beyond_key)
      )
    )
),
shift AS (
  SELECT MIN(w.min_begin_ts) AS ts
  FROM own AS w
  WHERE w.cf = 'write'
    AND w.max_ts > :start_ts
)
SELECT
  o.source, o.destination, o.path, o.backup_id, o.scope, o.epoch, o.region, o.format, o.codec, o.key_id, o.bytes,
  o.raw_bytes, o.sha256, o.entries, o.min_ts, o.max_ts, o.min_begin_ts, o.start_key, o.cf
FROM own AS o
CROSS JOIN shift AS s
WHERE (o.cf = 'write' AND o.max_ts > :start_ts)
  OR (o.cf = 'default' AND o.max_ts >= s.ts)
ORDER BY o.cf, CASE WHEN o.start_key = '' THEN 0 ELSE 1 END, o.scope, o.path

-- What a drill restores: a restore point of each source that this program can restore, in the form of trial_targets; of
-- :sources alone (an array; null: of all), of the backup :backup_id alone where one is named. It is the first in an
-- order that :seed determines; with :to_ms (ms since 1970 UTC) the newest that begins before that time, restored to
-- that time where it reaches so far.
SELECT c.source, c.source_kind, c.destination, c.backup_id, c.kind, c.to_ts, c.scopes
FROM (
  SELECT
    p.*,
    ROW_NUMBER() OVER (
      PARTITION BY p.source
      ORDER BY CASE WHEN CAST(:to_ms AS BIGINT) IS NOT NULL THEN p.covers_to END DESC,
        MD5(CONCAT(CAST(:seed AS STRING), ' ', p.backup_id)), p.backup_id
    ) AS nth
  FROM (
    SELECT
      t.source, t.source_kind, t.destination, t.backup_id,
      MAX(t.kind) AS kind,
      MAX(t.covers_to) AS covers_to,
      MAX(LEAST(t.covers_to, t.until_ts)) AS to_ts,
      ARRAY_JOIN(SORT_ARRAY(COLLECT_LIST(t.scope)), ',') AS scopes
    FROM (
      SELECT
        r.source, b.source_kind, r.destination, r.backup_id, r.kind, r.covers_from, r.covers_to, r.scope,
        CASE
          WHEN CAST(:to_ms AS BIGINT) IS NULL THEN r.covers_to
          WHEN r.ts_domain = 'tso' THEN CAST(:to_ms AS BIGINT) * 262144 + 262143
          ELSE CAST(:to_ms AS BIGINT)
        END AS until_ts
      FROM chain_points AS r
      JOIN raw_backups AS b ON r.backup_id = b.backup_id
      WHERE b.source_kind IN ('kafka', 'snapshot', 'changes', 'queues')
        AND (CAST(:sources AS ARRAY<STRING>) IS NULL OR ARRAY_CONTAINS(CAST(:sources AS ARRAY<STRING>), r.source))
        AND (CAST(:backup_id AS STRING) IS NULL OR r.backup_id = :backup_id)
    ) AS t
    WHERE t.covers_from < t.until_ts
    GROUP BY t.source, t.source_kind, t.destination, t.backup_id
  ) AS p
) AS c
WHERE c.nth = 1
ORDER BY c.source

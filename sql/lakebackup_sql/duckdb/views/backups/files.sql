-- a6daa21a15d6e3ef emptied_backups raw_backups raw_files raw_removals
SELECT
  f.*,
  TIMESTAMP_MILLIS(
    CASE
      WHEN f.min_ts >= 0
      THEN f.min_ts // CASE f.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END
    END
  ) AS min_time,
  TIMESTAMP_MILLIS(
    CASE
      WHEN f.max_ts >= 0
      THEN f.max_ts // CASE f.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END
    END
  ) AS max_time,
  TIMESTAMP_MILLIS(
    CASE
      WHEN f.min_begin_ts >= 0
      THEN f.min_begin_ts // CASE f.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END
    END
  ) AS min_begin_time,
  TIMESTAMP_MILLIS(
    CASE
      WHEN f.resolved_ts >= 0
      THEN f.resolved_ts // CASE f.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END
    END
  ) AS resolved_time
FROM raw_files AS f
JOIN (
  SELECT
    k.backup_id
  FROM raw_backups AS k
  LEFT JOIN (
    SELECT DISTINCT
      parent
    FROM raw_backups
    WHERE
      NOT parent IS NULL AND parent_place IS NULL
  ) AS c
    ON k.backup_id = c.parent
  WHERE
    k.state IN ('complete', 'out_of_sync')
    OR (
      k.state = 'deleted' AND (
        k.source_kind = 'snapshot' OR NOT c.parent IS NULL
      )
    )
) AS b
  ON b.backup_id = f.backup_id
ANTI JOIN raw_removals AS r
  ON r.destination = f.destination AND r.path = f.path
ANTI JOIN emptied_backups AS e
  ON e.backup_id = CASE WHEN f.role <> 'meta' THEN f.backup_id END

-- Data files of committed backups that were not pruned. A timestamp below 0 means that some record carries none.
-- Objects of a snapshot's backup are there until they are pruned, since later backups may have their files; the same
-- goes for another program's backups of which each was compared with the one before.
-- min_time: min_ts, in UTC; null: some record has no timestamp, or a unit that is no time
-- max_time: max_ts, in UTC; null: no record has a timestamp, or a unit that is no time
-- min_begin_time: min_begin_ts, in UTC; null: none, or a unit that is no time
-- resolved_time: resolved_ts, in UTC; null: none, or a unit that is no time
SELECT
  f.*,
  timestamp_millis(
    CASE WHEN f.min_ts >= 0 THEN f.min_ts DIV CASE f.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END END
  ) AS min_time,
  timestamp_millis(
    CASE WHEN f.max_ts >= 0 THEN f.max_ts DIV CASE f.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END END
  ) AS max_time,
  timestamp_millis(
    CASE WHEN f.min_begin_ts >= 0 THEN f.min_begin_ts DIV CASE f.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END END
  ) AS min_begin_time,
  timestamp_millis(
    CASE WHEN f.resolved_ts >= 0 THEN f.resolved_ts DIV CASE f.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END END
  ) AS resolved_time
FROM raw_files AS f
JOIN (
  SELECT k.backup_id
  FROM raw_backups AS k
  LEFT JOIN (
    SELECT DISTINCT parent FROM raw_backups WHERE parent IS NOT NULL AND parent_place IS NULL
  ) AS c ON k.backup_id = c.parent
  WHERE k.state IN ('complete', 'out_of_sync')
    OR (k.state = 'deleted' AND (k.source_kind = 'snapshot' OR c.parent IS NOT NULL))
) AS b ON b.backup_id = f.backup_id
LEFT ANTI JOIN raw_removals AS r ON r.destination = f.destination AND r.path = f.path
LEFT ANTI JOIN emptied_backups AS e ON e.backup_id = CASE WHEN f.role <> 'meta' THEN f.backup_id END

-- One row per stored data file of a committed backup: where the file is, how large it is, and which records it holds.
-- Pruned files are left out. A timestamp below 0 means that at least one record has no timestamp. If a snapshot's
-- backup is deleted, its objects keep their rows until they are pruned, because later backups may have files in them.
-- The same applies to another program's backups if each of them was compared with the previous one.
-- min_time: min_ts, in UTC; null: some record has no timestamp, or ts_domain is neither ms nor tso
-- max_time: max_ts, in UTC; null: no record has a timestamp, or ts_domain is neither ms nor tso
-- min_begin_time: min_begin_ts, in UTC; null: no min_begin_ts, or ts_domain is neither ms nor tso
-- resolved_time: resolved_ts, in UTC; null: no resolved_ts, or ts_domain is neither ms nor tso
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

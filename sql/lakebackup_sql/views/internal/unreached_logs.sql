-- One row per log of another program that no restore can use. Either no backup that can be restored comes before the
-- log, or a log in between is missing.
-- backup_id: the log
SELECT l.backup_id
FROM (
  SELECT b.backup_id, b.source, b.start_ts, b.end_ts
  FROM backups AS b
  LEFT ANTI JOIN own_kinds AS k ON b.source_kind = k.source_kind
  WHERE b.kind = 'log' AND b.state = 'complete'
) AS l
LEFT ANTI JOIN restore_spans AS s
  ON l.source = s.source AND l.end_ts > s.base_ts AND LEAST(l.start_ts, l.end_ts - 1) < s.covers_to

-- 2592bb90ffdab9a7 backups own_kinds restore_spans
SELECT
  l.backup_id
FROM (
  SELECT
    b.backup_id,
    b.source,
    b.start_ts,
    b.end_ts
  FROM backups AS b
  ANTI JOIN own_kinds AS k
    ON b.source_kind = k.source_kind
  WHERE
    b.kind = 'log' AND b.state = 'complete'
) AS l
ANTI JOIN restore_spans AS s
  ON l.source = s.source
  AND l.end_ts > s.base_ts
  AND LEAST(l.start_ts, l.end_ts - 1) < s.covers_to

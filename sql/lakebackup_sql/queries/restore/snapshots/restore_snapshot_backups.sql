-- Backups of snapshots of :source that can be restored to :to_ts (ms; null: to the newest): first the newest one before
-- then that is whole, then what came after it, without a whole one all of them, the newest first; no more than 100.
-- With :backup_id (else null) that backup alone. To a time, none is from the future, or ends before an earlier one does
-- since a clock was behind: when it was taken is not known. reason, path, detail: why the view unusable_backups has it; null: it
-- is whole
SELECT k.source, k.backup_id, k.number, k.end_ts, k.state, k.reason, k.path, k.detail
FROM (
  SELECT
    b.source, b.backup_id, b.number, b.end_ts, b.state, u.reason, u.path, u.detail,
    MAX(CASE WHEN u.backup_id IS NULL THEN b.number END) OVER (PARTITION BY b.source) AS whole
  FROM (
    SELECT
      c.*, f.backup_id IS NOT NULL AS future,
      MAX(CASE WHEN f.backup_id IS NULL THEN c.end_ts END) OVER (
        PARTITION BY c.source ORDER BY c.number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS before_ts
    FROM backups AS c
    LEFT JOIN future_backups AS f ON c.backup_id = f.backup_id
    WHERE c.source = :source
  ) AS b
  LEFT JOIN (
    SELECT w.backup_id, MIN(w.reason) AS reason, MIN_BY(w.path, w.reason) AS path, MIN_BY(w.detail, w.reason) AS detail
    FROM unusable_backups AS w
    GROUP BY w.backup_id
  ) AS u ON b.backup_id = u.backup_id
  WHERE b.source = :source
    AND b.source_kind = 'snapshot'
    AND (CAST(:backup_id AS STRING) IS NULL OR b.backup_id = :backup_id)
    AND (CAST(:backup_id AS STRING) IS NOT NULL OR b.state = 'complete')
    AND (
      CAST(:to_ts AS BIGINT) IS NULL
      OR (b.end_ts <= :to_ts AND NOT b.future AND COALESCE(b.end_ts >= b.before_ts, TRUE))
    )
) AS k
WHERE k.number >= COALESCE(k.whole, 0)
ORDER BY CASE WHEN k.number = k.whole THEN 0 ELSE 1 END, k.number DESC
LIMIT 100

-- One row per backup that the redundancy keeps: one of the newest fulls, or a backup taken after the oldest of these. If
-- there are fewer fulls than the redundancy, it keeps everything. keep_differentials limits the backups on each full to
-- those that are, or depend on, one of so many newest ones; as the only rule it does so with any redundancy.
WITH ranked AS (
  SELECT
    k.*,
    ROW_NUMBER() OVER (PARTITION BY k.source, k.is_full ORDER BY k.place DESC, k.number DESC) AS nth_full,
    ROW_NUMBER() OVER (PARTITION BY k.source, k.is_first ORDER BY k.place DESC, k.number DESC) AS nth_first
  FROM retained_backups AS k
  WHERE k.redundancy IS NOT NULL OR (k.keep_differentials IS NOT NULL AND k.window_days IS NULL AND NOT k.has_rules)
),
limited AS (
  SELECT
    r.*,
    MAX(CASE WHEN r.is_full AND r.nth_full = r.redundancy THEN r.place END) OVER (
      PARTITION BY r.source
    ) AS redundancy_place,
    -- The rank of the full, or of the backup directly on a full, that this backup is or depends on.
    MAX_BY(CASE WHEN r.is_first THEN r.nth_first END, CASE WHEN r.is_first THEN r.link END) OVER (
      PARTITION BY r.source, r.base ORDER BY r.link ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS of_first
  FROM ranked AS r
)
SELECT l.backup_id
FROM limited AS l
WHERE l.place >= COALESCE(l.redundancy_place, 0)
  AND (l.is_full OR COALESCE(l.of_first <= l.keep_differentials, TRUE))

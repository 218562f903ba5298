-- One row per backup that the recovery window keeps: it ended within the window, or a restore to the window's first
-- moment starts with it. That restore starts with the newest full from before the window. If there is no such full, the
-- window keeps everything.
WITH spans AS (
  SELECT
    k.backup_id, k.place, k.is_full, k.ended_ms, k.window_from_ts, k.window_place,
    k.usable AND k.ended_ms <= k.window_from_ts AS before_window,
    ROW_NUMBER() OVER (
      PARTITION BY k.source, k.usable AND COALESCE(k.ended_ms <= k.window_from_ts, FALSE)
      ORDER BY k.place DESC, k.number DESC
    ) AS nth
  FROM retained_backups AS k
  WHERE k.window_days IS NOT NULL
)
SELECT s.backup_id
FROM spans AS s
WHERE s.window_place IS NULL
  OR s.ended_ms > s.window_from_ts
  OR (s.before_window AND s.nth = 1)
  OR (s.is_full AND s.place = s.window_place)

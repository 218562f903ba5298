-- For a calendar: what became of the runs of each source on each of the :days days (UTC) up to :now_ms that had any.
-- succeeded: other backups that ended then, those too that were deleted since
-- failed: runs that ended in an error (`failures`), and those of the backups that cannot be restored (`unusable`)
-- missed: runs that the shortest schedule of the source's policy had due then, since it first had one; a run that came
--   less than half an interval late counts
-- longest_ms: how long the longest took
-- bytes: what they wrote
WITH ended AS (
  SELECT
    b.source, b.backup_id, b.bytes,
    (b.finished_at - b.started_at) DIV 1000 AS duration_ms,
    b.finished_at DIV 86400000000 AS day,
    CASE WHEN b.ts_domain = 'ms' THEN b.end_ts ELSE b.started_at DIV 1000 END AS began_ts
  FROM backups AS b
),
scheduled AS (
  SELECT m.source, m.every_ms, p.since_ts
  FROM (SELECT source, MIN(every_ms) AS every_ms FROM missed_runs GROUP BY source) AS m
  JOIN (SELECT source, MIN(at) DIV 1000 AS since_ts FROM raw_policies GROUP BY source) AS p ON m.source = p.source
),
waits AS (
  SELECT
    w.source, w.every_ms, w.began_ts,
    CASE
      WHEN w.next_ts IS NULL THEN (:now_ms - w.began_ts) DIV w.every_ms
      ELSE (w.next_ts - w.began_ts + w.every_ms DIV 2) DIV w.every_ms - 1
    END AS missed
  FROM (
    SELECT
      r.source, r.began_ts, s.every_ms,
      LEAD(r.began_ts) OVER (PARTITION BY r.source ORDER BY r.began_ts) AS next_ts
    FROM (
      SELECT source, began_ts FROM ended
      UNION ALL
      SELECT source, since_ts AS began_ts FROM scheduled
    ) AS r
    JOIN scheduled AS s ON r.source = s.source
    WHERE r.began_ts >= s.since_ts
  ) AS w
),
days AS (SELECT EXPLODE(SEQUENCE(:now_ms DIV 86400000 - :days + 1, :now_ms DIV 86400000)) AS day),
counted AS (
  SELECT
    e.source, e.day, 1 AS ended, CASE WHEN u.backup_id IS NULL THEN 0 ELSE 1 END AS failed, 0 AS missed,
    e.duration_ms, e.bytes
  FROM ended AS e
  LEFT JOIN (SELECT DISTINCT backup_id FROM unusable WHERE reason <> 'pruned') AS u ON e.backup_id = u.backup_id
  WHERE e.day > :now_ms DIV 86400000 - :days
  UNION ALL
  SELECT
    f.source, f.at DIV 86400000000 AS day, 1 AS ended, 1 AS failed, 0 AS missed, CAST(NULL AS BIGINT) AS duration_ms,
    0 AS bytes
  FROM failures AS f
  WHERE f.at DIV 86400000000 > :now_ms DIV 86400000 - :days
  UNION ALL
  SELECT
    w.source, d.day, 0 AS ended, 0 AS failed,
    LEAST(w.missed, ((d.day + 1) * 86400000 - 1 - w.began_ts) DIV w.every_ms)
      - GREATEST(d.day * 86400000 - 1 - w.began_ts, 0) DIV w.every_ms AS missed,
    CAST(NULL AS BIGINT) AS duration_ms, 0 AS bytes
  FROM waits AS w
  JOIN days AS d
    ON (d.day + 1) * 86400000 > w.began_ts AND d.day * 86400000 <= w.began_ts + w.missed * w.every_ms
  WHERE w.missed > 0
)
SELECT
  source, day * 86400000 AS day_ts,
  CAST(SUM(ended - failed) AS BIGINT) AS succeeded,
  CAST(SUM(failed) AS BIGINT) AS failed,
  CAST(SUM(missed) AS BIGINT) AS missed,
  MAX(duration_ms) AS longest_ms,
  CAST(SUM(bytes) AS BIGINT) AS bytes
FROM counted
GROUP BY source, day
HAVING SUM(ended) + SUM(missed) > 0
ORDER BY source, day

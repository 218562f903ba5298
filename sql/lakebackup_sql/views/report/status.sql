-- One row per source: its state, and whether it needs attention.
-- status: the first of these states that applies: DAMAGED (it has backups that no restore can use, see
--   `unusable_backups`; or a drill found a difference and no later one was good, see `drills`), UNPROTECTED (nothing
--   can be restored), FAILED (a run ended in an error and none like it has ended well since, see `failures`; or drills
--   failed since the last good one), LATE (a run of its policy was missed, a schedule of it cannot be read, or its log
--   task paused itself), FUTURE (`future_backups` has backups of it), UNPROTECTED (`unprotected_topics` has topics of
--   it), UNVERIFIED (verify has never checked all that its newest backup needs), OK
-- rank: position of the state in that list; 1 is the worst
-- detail: every problem of the source, the worst first; null: it is OK
-- backup_id: its newest backup that can be restored; null: none
-- finished_at: when that backup ended, microseconds since 1970 UTC; null: no such backup, or it is from the future
-- finished_time: finished_at, in UTC
-- duration_ms: how long that backup took
-- bytes: size of what that backup wrote
-- restorable_ts: newest instant to which all topics that the source still has can be restored; null: none
-- restorable_time: restorable_ts, in UTC
-- lag_ms: time from that instant to now, in ms
-- due_ts: when the next run of its policy is or was due, ms since 1970 UTC; null: no policy schedules one, or its
--   schedule cannot be read
-- due_time: due_ts, in UTC
-- missed: number of runs of its policy that were missed
-- verified_at: verify has checked all that the newest backup needs at this time or later, microseconds since 1970 UTC;
--   null: it has never checked all of it
-- verified_time: verified_at, in UTC
-- damaged: number of its backups with a missing, changed or damaged file, or with a failed trial restore
-- unprotected: number of its topics in `unprotected_topics`
-- future: number of its backups in `future_backups`
-- held_bytes: size of its files in storage
-- last_drill: when its last good drill began, in UTC; null: never
-- drill_age_ms: time from the start of that drill to now, in ms
-- drill_predicted_ms: how long that drill's restore was expected to take; null: there was nothing to estimate it from
-- drill_real_ms: how long that drill's restore took
-- drill_due_ts: when the next drill of its policy is or was due, ms since 1970 UTC; null: as in due_ts
-- drill_due_time: drill_due_ts, in UTC
-- drill_failures: number of drills since the last good one that failed or found a difference
-- drill_outcome: outcome of the last such drill that found a difference, else of the last that failed; null: none
-- drill_backup_id: the backup that this drill restored; null: none, or it was deleted since
-- drill_failure: what went wrong in this drill
-- failed_runs: number of runs that ended in an error and are not resolved; a failed backup is resolved when a later one
--   ends that reads the source (no merge or compaction), whatever its state; a failed full of a change feed, when a
--   later full ends; a failed merge, compaction, prune or truncate, when the next such run ends well
-- failed_run: kind of the last of these: backup, follow, full, import, merge, compact, prune or truncate
-- last_failure: when the last of these ended, in UTC; null: none
-- failure: its error message, and what to do next
WITH newest AS (
  SELECT
    n.source, n.backup_id, n.base, n.link, n.bytes, n.finished_at - n.started_at AS duration_us,
    CASE WHEN v.backup_id IS NULL THEN n.finished_at END AS finished_at
  FROM (
    SELECT g.*, ROW_NUMBER() OVER (PARTITION BY g.source ORDER BY g.place DESC, g.number DESC) AS nth
    FROM backups AS g
    LEFT ANTI JOIN unreached_logs AS u ON g.backup_id = u.backup_id
    WHERE g.state = 'complete' AND g.intact
  ) AS n
  LEFT JOIN future_backups AS v ON n.backup_id = v.backup_id
  WHERE n.nth = 1
),
looked_at AS (
  SELECT backup_id, MAX(at) AS at FROM raw_checks WHERE mode NOT IN ('keys', 'list') AND backup_id IS NOT NULL GROUP BY backup_id
),
verified AS (
  SELECT n.source, MIN(l.at) AS at
  FROM newest AS n
  JOIN backups AS b ON n.source = b.source AND n.base = b.base AND b.link <= n.link AND n.link < b.unlinked
  LEFT JOIN looked_at AS l ON b.backup_id = l.backup_id
  GROUP BY n.source
  HAVING COUNT(*) = COUNT(l.at)
),
drilled AS (
  SELECT g.source, g.at, g.predicted_ms, g.real_ms
  FROM (
    SELECT d.*, ROW_NUMBER() OVER (PARTITION BY d.source ORDER BY d.at DESC) AS nth
    FROM raw_drills AS d
    WHERE d.outcome = 'ok'
  ) AS g
  WHERE g.nth = 1
),
not_good AS (
  SELECT g.source, g.failures, g.outcome, b.backup_id, g.detail
  FROM (
    SELECT
      d.source, d.outcome, d.backup_id, d.detail, COUNT(*) OVER (PARTITION BY d.source) AS failures,
      ROW_NUMBER() OVER (PARTITION BY d.source ORDER BY d.outcome, d.at DESC) AS nth  -- 'different' before 'failed'
    FROM raw_drills AS d
    LEFT JOIN drilled AS e ON d.source = e.source
    WHERE d.outcome <> 'ok' AND d.at > COALESCE(e.at, -1)
  ) AS g
  LEFT JOIN backups AS b ON g.backup_id = b.backup_id AND b.state = 'complete'
  WHERE g.nth = 1
),
ended_well AS (
  SELECT b.source, 'backup' AS run, MAX(b.finished_at) AS at
  FROM raw_backups AS b
  LEFT JOIN compactions AS c ON b.source = c.source AND b.place = c.place
  WHERE b.number = b.place AND (b.source_kind <> 'kafka' OR c.place IS NULL)
    AND b.finished_at <= (SELECT horizon_ms FROM horizon) * 1000
  GROUP BY b.source
  UNION ALL
  SELECT source, 'full' AS run, MAX(finished_at) AS at
  FROM raw_backups
  WHERE kind = 'full' AND finished_at <= (SELECT horizon_ms FROM horizon) * 1000
  GROUP BY source
  UNION ALL
  SELECT source, run, MAX(at) AS at
  FROM raw_failures
  WHERE exit_code = 0 AND at <= (SELECT horizon_ms FROM horizon) * 1000
  GROUP BY source, run
),
failed AS (
  SELECT
    f.source, COUNT(*) AS failed_runs, MAX(f.at) AS failed_at, MAX_BY(f.run, f.at) AS failed_run,
    MAX_BY(COALESCE(NULLIF(f.message, ''), f.error), f.at) AS failure
  FROM raw_failures AS f
  LEFT JOIN ended_well AS e
    ON f.source = e.source AND CASE WHEN f.run IN ('follow', 'import') THEN 'backup' ELSE f.run END = e.run
  WHERE f.exit_code <> 0 AND f.at > COALESCE(e.at, -1)
  GROUP BY f.source
),
found AS (
  SELECT
    s.source, s.source_kind, n.backup_id, n.duration_us, n.finished_at, n.bytes, r.restorable_ts, r.restorable_time, r.lag_ms,
    m.due_ts, COALESCE(m.missed, 0) AS missed, v.at AS verified_at, COALESCE(u.damaged, 0) AS damaged,
    COALESCE(t.topics, 0) AS unprotected, COALESCE(g.held_bytes, 0) AS held_bytes,
    COALESCE(k.state = 'paused' AND k.detail IS NOT NULL, FALSE) AS paused, x.source IS NOT NULL AS unreadable,
    e.at AS drilled_at, e.predicted_ms AS drill_predicted_ms, e.real_ms AS drill_real_ms,
    i.due_ts AS drill_due_ts, COALESCE(h.failures, 0) AS drill_failures, h.outcome AS drill_outcome,
    h.backup_id AS drill_backup_id, h.detail AS drill_failure,
    COALESCE(w.failed_runs, 0) AS failed_runs, w.failed_run, w.failed_at, w.failure,
    COALESCE(j.future, 0) AS future, j.future_id
  FROM (
    SELECT source, MAX(source_kind) AS source_kind
    FROM (
      SELECT source, source_kind FROM raw_backups
      UNION ALL
      SELECT source, CAST(NULL AS STRING) AS source_kind FROM policies
      UNION ALL
      SELECT source, 'changes' AS source_kind FROM log_tasks WHERE state <> 'stopped'
    ) AS every
    GROUP BY source
  ) AS s
  LEFT JOIN newest AS n ON s.source = n.source
  LEFT JOIN verified AS v ON s.source = v.source
  LEFT JOIN log_tasks AS k ON s.source = k.source
  LEFT JOIN (
    SELECT source, MIN(restorable_ts) AS restorable_ts, MIN(restorable_time) AS restorable_time, MAX(lag_ms) AS lag_ms
    FROM rpo
    WHERE present
    GROUP BY source
    HAVING COUNT(*) = COUNT(restorable_ts)
  ) AS r ON s.source = r.source
  LEFT JOIN (
    SELECT source, MIN(due_ts) AS due_ts, CAST(SUM(missed) AS BIGINT) AS missed
    FROM missed_runs
    GROUP BY source
  ) AS m ON s.source = m.source
  LEFT JOIN (
    SELECT source, COUNT(DISTINCT backup_id) AS damaged
    FROM unusable_backups
    WHERE reason IN ('missing', 'changed', 'damaged', 'trial')
    GROUP BY source
  ) AS u ON s.source = u.source
  LEFT JOIN (SELECT source, COUNT(*) AS topics FROM unprotected_topics GROUP BY source) AS t ON s.source = t.source
  LEFT JOIN (SELECT source, MAX_BY(held_bytes, day) AS held_bytes FROM growth GROUP BY source) AS g ON s.source = g.source
  LEFT JOIN drilled AS e ON s.source = e.source
  LEFT JOIN (SELECT source, due_ts FROM due_runs WHERE run = 'drill') AS i ON s.source = i.source
  LEFT JOIN (SELECT DISTINCT source FROM due_runs WHERE due_ts IS NULL) AS x ON s.source = x.source
  LEFT JOIN not_good AS h ON s.source = h.source
  LEFT JOIN failed AS w ON s.source = w.source
  LEFT JOIN (
    SELECT source, COUNT(*) AS future, MAX_BY(backup_id, number) AS future_id FROM future_backups GROUP BY source
  ) AS j ON s.source = j.source
),
ranked AS (
  SELECT
    f.*,
    CASE
      WHEN f.damaged > 0 OR f.drill_outcome = 'different' THEN 1
      WHEN f.backup_id IS NULL THEN 2
      WHEN f.failed_runs > 0 OR f.drill_outcome = 'failed' THEN 3
      WHEN f.missed > 0 OR f.unreadable OR f.paused THEN 4
      WHEN f.future > 0 THEN 5
      WHEN f.unprotected > 0 THEN 6
      WHEN f.verified_at IS NULL THEN 7
      ELSE 8
    END AS rank
  FROM found AS f
)
SELECT
  source, source_kind,
  CASE rank
    WHEN 1 THEN 'DAMAGED' WHEN 2 THEN 'UNPROTECTED' WHEN 3 THEN 'FAILED' WHEN 4 THEN 'LATE' WHEN 5 THEN 'FUTURE'
    WHEN 6 THEN 'UNPROTECTED' WHEN 7 THEN 'UNVERIFIED' ELSE 'OK'
  END AS status,
  rank,
  NULLIF(
    CONCAT_WS(
      '; ',
      CASE WHEN damaged > 0 THEN CONCAT('backups with faults: ', CAST(damaged AS STRING)) END,
      CASE WHEN drill_outcome = 'different' THEN CONCAT_WS(': ', 'a drill found a difference', drill_failure) END,
      CASE WHEN backup_id IS NULL THEN 'nothing can be restored' END,
      CASE
        WHEN failed_runs > 0
          THEN CONCAT('failed runs: ', CAST(failed_runs AS STRING), ', the last: ', failed_run, ': ', failure)
      END,
      CASE WHEN drill_outcome = 'failed' THEN CONCAT_WS(': ', 'the last drill failed', drill_failure) END,
      CASE WHEN missed > 0 THEN CONCAT('missed runs: ', CAST(missed AS STRING)) END,
      CASE WHEN unreadable THEN 'a schedule of its policy cannot be read: lakebackup due' END,
      CASE WHEN paused THEN 'its log task paused itself' END,
      CASE
        WHEN future > 0
          THEN CONCAT(
            'backups from the future: ', CAST(future AS STRING), ', the last: ', future_id,
            ' (lakebackup prune --future)'
          )
      END,
      CASE WHEN unprotected > 0 THEN CONCAT('topics without a backup: ', CAST(unprotected AS STRING)) END,
      CASE WHEN backup_id IS NOT NULL AND verified_at IS NULL THEN 'never verified' END
    ),
    ''
  ) AS detail,
  backup_id, finished_at, timestamp_micros(finished_at) AS finished_time,
  CAST(FLOOR(duration_us / 1000) AS BIGINT) AS duration_ms, bytes, restorable_ts, restorable_time, lag_ms,
  due_ts, timestamp_millis(due_ts) AS due_time, missed, verified_at, timestamp_micros(verified_at) AS verified_time,
  damaged, unprotected, future, held_bytes, timestamp_micros(drilled_at) AS last_drill,
  (SELECT now_ms FROM clock) - drilled_at DIV 1000 AS drill_age_ms, drill_predicted_ms, drill_real_ms,
  drill_due_ts, timestamp_millis(drill_due_ts) AS drill_due_time, drill_failures, drill_outcome, drill_backup_id,
  drill_failure, failed_runs, failed_run, timestamp_micros(failed_at) AS last_failure, failure
FROM ranked

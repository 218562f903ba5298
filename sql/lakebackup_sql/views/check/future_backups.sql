-- One row per backup from the future: which backups were taken while a clock was ahead. Their data can be restored, and
-- later backups may continue them, but their times are wrong. So these backups cover no time of their own, and no
-- schedule and no rule of a policy counts them. They stay until `lakebackup prune --future --delete` deletes them. A
-- backup of topics, snapshots or queues remains in the view after its time has come if later backups show that its
-- clock was ahead. For this, it must end after N later backups, and one of these must have fewer than N earlier backups
-- that end after it. Otherwise the clock of the later backups was behind.
-- ahead_ms: how far in the future it ends, in ms; null: its time has come, and later backups show that it is wrong
WITH dated AS (
  SELECT
    b.source, b.backup_id, b.number, b.place, b.kind, b.source_kind, b.end_ts, b.end_time,
    CASE b.ts_domain
      WHEN 'ms' THEN b.end_ts
      WHEN 'tso' THEN GREATEST(b.end_ts DIV 262144, CAST(FLOOR(b.started_at / 1000) AS BIGINT))
      ELSE CAST(FLOOR(b.started_at / 1000) AS BIGINT)
    END AS ended_ms
  FROM backups AS b
  WHERE b.state <> 'deleted'
),
-- Backups that end with their run, by its clock. If all clocks were right, none would end after a later one.
timed AS (
  SELECT
    d.*,
    MIN(CASE WHEN d.number = d.place THEN d.ended_ms END) OVER (
      PARTITION BY d.source ORDER BY d.place DESC, d.number DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS later_ms,
    MAX(d.ended_ms) OVER (
      PARTITION BY d.source ORDER BY d.place, d.number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS earlier_ms
  FROM dated AS d
  WHERE d.source_kind IN ('kafka', 'snapshot', 'queues')
    AND d.ended_ms <= (SELECT horizon_ms FROM horizon)
),
pairs AS (
  SELECT
    e.backup_id,
    COUNT(*) OVER (PARTITION BY e.source, e.backup_id) AS later,
    COUNT(*) OVER (PARTITION BY l.source, l.backup_id) AS earlier
  FROM (SELECT * FROM timed WHERE ended_ms > later_ms + (SELECT skew_ms FROM horizon)) AS e
  JOIN (SELECT * FROM timed WHERE ended_ms < earlier_ms - (SELECT skew_ms FROM horizon) AND number = place) AS l
    ON e.source = l.source AND e.place < l.place AND e.ended_ms > l.ended_ms + (SELECT skew_ms FROM horizon)
)
SELECT
  d.source, d.backup_id, d.number, d.kind, d.source_kind, d.end_ts, d.end_time,
  CASE WHEN d.ended_ms > n.horizon_ms THEN d.ended_ms - n.now_ms END AS ahead_ms
FROM dated AS d
CROSS JOIN horizon AS n
LEFT JOIN (SELECT DISTINCT backup_id FROM pairs WHERE later > earlier) AS p ON d.backup_id = p.backup_id
WHERE d.ended_ms > n.horizon_ms OR p.backup_id IS NOT NULL

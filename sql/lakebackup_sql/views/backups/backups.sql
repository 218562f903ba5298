-- One row per committed backup: what it holds, which backup it continues, and whether it can be restored.
-- link: position in the chain of its base, from 1, in the order of what they hold; a merge follows what it merges
-- unlinked: first later link that does not need this backup; backups with a link from this one's to unlinked - 1 do
-- chained: true: this backup and all backups that it needs are complete
-- intact: true: chained, and verify reported none of their files missing, changed or damaged, so it can be restored
-- start_time: start_ts, in UTC; null: no start_ts, or ts_domain is neither ms nor tso
-- end_time: end_ts, in UTC; null: ts_domain is neither ms nor tso
-- started_time: started_at, in UTC
-- finished_time: finished_at, in UTC
WITH ordered AS (
  -- A window sorts complete rows, so these rows have only the columns that the windows need.
  SELECT
    b.backup_id, b.source, b.base, b.present, b.place, b.parent_place, b.faulty,
    ROW_NUMBER() OVER chain AS link,
    COUNT(*) OVER (PARTITION BY b.source, b.base) + 1 AS beyond,
    b.present AND b.parent_place < LAG(b.place) OVER chain AS turns
  FROM (
    -- Another program's backup can continue a backup of an abandoned history, so that one counts as present.
    SELECT
      r.*, f.backup_id IS NOT NULL AS faulty,
      r.state = 'complete' OR (r.state = 'out_of_sync' AND k.source_kind IS NULL) AS present
    FROM raw_backups AS r
    LEFT JOIN own_kinds AS k ON r.source_kind = k.source_kind
    LEFT JOIN faulty_backups AS f ON r.backup_id = f.backup_id
  ) AS b
  WINDOW chain AS (PARTITION BY b.source, b.base ORDER BY b.place, b.number)
),
-- A backup that does not continue the one before it replaces all backups after its parent.
replaced AS (
  SELECT o.backup_id, MIN(t.link) AS unlinked
  FROM ordered AS o
  JOIN ordered AS t ON o.source = t.source AND o.base = t.base AND o.link < t.link AND o.place > t.parent_place
  WHERE t.turns
  GROUP BY o.backup_id
),
linked AS (
  SELECT o.*, COALESCE(r.unlinked, o.beyond) AS unlinked
  FROM ordered AS o
  LEFT JOIN replaced AS r ON o.backup_id = r.backup_id
),
ends AS (
  SELECT
    source, base, unlinked, SUM(place - COALESCE(parent_place, 0)) AS span,
    SUM(CASE WHEN faulty THEN 1 ELSE 0 END) AS faults
  FROM linked
  WHERE present AND unlinked < beyond
  GROUP BY source, base, unlinked
),
-- Laid end to end, the backups that a backup needs reach from 0 to its place. If they do not, one is missing.
reached AS (
  SELECT
    l.*,
    SUM(
      CASE WHEN l.present THEN l.place - COALESCE(l.parent_place, 0) ELSE 0 END - COALESCE(e.span, 0)
    ) OVER (
      PARTITION BY l.source, l.base ORDER BY l.link ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS reach,
    SUM(CASE WHEN l.present AND l.faulty THEN 1 ELSE 0 END - COALESCE(e.faults, 0)) OVER (
      PARTITION BY l.source, l.base ORDER BY l.link ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS faults
  FROM linked AS l
  LEFT JOIN ends AS e ON l.source = e.source AND l.base = e.base AND l.link = e.unlinked
)
SELECT
  b.backup_id, b.number, b.source, b.source_kind, b.destination, b.kind, b.level, b.parent, b.base, b.chain_position,
  b.place, b.parent_place, b.branch, b.state, b.ts_domain, b.start_ts, b.end_ts, b.started_at, b.finished_at, b.files,
  b.bytes, b.entries, b.digest, b.isolation, b.codec, b.created_by, b.tool, b.note, b.runner, r.link, r.unlinked,
  b.state = 'complete' AND r.reach = b.place AS chained,
  -- In a change feed, a fault in one flush affects only that flush.
  b.state = 'complete' AND r.reach = b.place
    AND CASE WHEN b.source_kind = 'changes' THEN NOT r.faulty ELSE r.faults = 0 END AS intact,
  timestamp_millis(b.start_ts DIV CASE b.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END) AS start_time,
  timestamp_millis(b.end_ts DIV CASE b.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END) AS end_time,
  timestamp_micros(b.started_at) AS started_time,
  timestamp_micros(b.finished_at) AS finished_time
FROM raw_backups AS b
JOIN reached AS r ON b.source = r.source AND b.backup_id = r.backup_id

-- One row per source and day (UTC): how much data backups added and prunes deleted. A backup counts on the day it
-- ended.
-- day: the day, in UTC
-- backups: number of backups that ended on this day
-- new_files: number of data files that these backups wrote
-- new_bytes: size of these files
-- referenced_bytes: size of what the chain of the newest backup held before this day and did not copy again; for
--   snapshots: files of earlier days that the newest backup has; for a change feed: its log and its fulls of earlier
--   days
-- removed_bytes: size of the files that prunes deleted
-- held_bytes: size of all data files of all chains in storage at the end of the day
WITH chain_of AS (
  SELECT
    b.backup_id, b.source, b.source_kind, b.number,
    CASE
      WHEN b.source_kind IN ('snapshot', 'changes') THEN '-'
      -- Each of these backups of another program was compared with the previous one, and depends on none.
      WHEN MAX(CASE WHEN b.parent_place IS NULL THEN b.parent END) OVER (PARTITION BY b.source) IS NOT NULL THEN '-'
      ELSE b.base
    END AS base,
    CAST(timestamp_micros(b.finished_at) AS DATE) AS day, b.files, b.bytes,
    b.state <> 'deleted' AS there
  FROM raw_backups AS b
  LEFT JOIN (SELECT DISTINCT backup_id FROM raw_removals) AS g ON b.backup_id = g.backup_id
  WHERE b.state IN ('complete', 'out_of_sync')
    OR (b.state = 'deleted' AND (b.source_kind = 'snapshot' OR g.backup_id IS NOT NULL))
),
-- Files of snapshots, with the day they were added and the day they left. A file that was added and left on the same
-- day counts on no other day.
passed AS (
  SELECT c.source, c.base, c.day, n.day AS gone_day, CAST(SUM(s.stored_bytes) AS BIGINT) AS bytes
  FROM snapshot_files AS s
  JOIN chain_of AS c ON s.backup_id = c.backup_id
  JOIN chain_of AS n ON s.gone_by = n.backup_id
  GROUP BY c.source, c.base, c.day, n.day
),
events AS (
  SELECT source, base, day, 1 AS backups, CASE WHEN there THEN number END AS number, files AS new_files, bytes AS new_bytes, 0 AS removed_bytes, 0 AS gone_bytes, 0 AS passed_bytes
  FROM chain_of
  UNION ALL
  SELECT c.source, c.base, CAST(timestamp_micros(r.at) AS DATE) AS day, 0 AS backups, CAST(NULL AS BIGINT) AS number,
    0 AS new_files, 0 AS new_bytes, r.bytes AS removed_bytes,
    -- A file that had already left the file set does not leave it again.
    CASE WHEN c.source_kind = 'snapshot' OR g.path IS NOT NULL OR (r.files IS NOT NULL AND r.reason = 'compacted') THEN -r.bytes ELSE 0 END AS gone_bytes,
    0 AS passed_bytes
  FROM raw_removals AS r
  JOIN chain_of AS c ON r.backup_id = c.backup_id
  LEFT JOIN raw_departures AS g ON r.destination = g.destination AND r.path = g.path
  UNION ALL
  SELECT c.source, c.base, n.day, 0 AS backups, CAST(NULL AS BIGINT) AS number,
    0 AS new_files, 0 AS new_bytes, 0 AS removed_bytes, d.bytes AS gone_bytes, 0 AS passed_bytes
  FROM raw_departures AS d
  JOIN chain_of AS c ON d.backup_id = c.backup_id
  JOIN chain_of AS n ON d.source = n.source AND d.gone_in = n.number AND c.base = n.base
  UNION ALL
  SELECT p.source, p.base, p.gone_day AS day, 0 AS backups, CAST(NULL AS BIGINT) AS number,
    0 AS new_files, 0 AS new_bytes, 0 AS removed_bytes,
    CASE WHEN p.gone_day > p.day THEN p.bytes ELSE 0 END AS gone_bytes,
    CASE WHEN p.gone_day > p.day THEN 0 ELSE p.bytes END AS passed_bytes
  FROM passed AS p
),
days AS (
  SELECT
    source, base, day,
    SUM(backups) AS backups,
    MAX(number) AS number,
    SUM(new_files) AS new_files,
    SUM(new_bytes) AS new_bytes,
    SUM(removed_bytes) AS removed_bytes,
    SUM(gone_bytes) AS gone_bytes,
    SUM(passed_bytes) AS passed_bytes
  FROM events
  GROUP BY source, base, day
),
totals AS (
  SELECT
    source, day,
    SUM(backups) AS backups,
    MAX(number) AS number,
    SUM(new_files) AS new_files,
    SUM(new_bytes) AS new_bytes,
    SUM(removed_bytes) AS removed_bytes
  FROM days
  GROUP BY source, day
),
dated AS (
  SELECT
    t.*,
    SUM(t.new_bytes - t.removed_bytes) OVER upto AS held_bytes,
    MAX(t.number) OVER upto AS newest
  FROM totals AS t
  WINDOW upto AS (PARTITION BY t.source ORDER BY t.day ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
)
SELECT
  d.source, d.day,
  CAST(MAX(d.backups) AS BIGINT) AS backups,
  CAST(MAX(d.new_files) AS BIGINT) AS new_files,
  CAST(MAX(d.new_bytes) AS BIGINT) AS new_bytes,
  CAST(COALESCE(SUM(
    CASE WHEN e.day < d.day THEN e.new_bytes - e.passed_bytes ELSE 0 END - e.removed_bytes - e.gone_bytes
  ), 0) AS BIGINT) AS referenced_bytes,
  CAST(MAX(d.removed_bytes) AS BIGINT) AS removed_bytes,
  CAST(MAX(d.held_bytes) AS BIGINT) AS held_bytes
FROM dated AS d
LEFT JOIN chain_of AS c ON d.source = c.source AND d.newest = c.number
LEFT JOIN days AS e ON c.source = e.source AND c.base = e.base AND e.day <= d.day
GROUP BY d.source, d.day

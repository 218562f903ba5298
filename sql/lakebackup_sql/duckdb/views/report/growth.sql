-- d85ddefece16bdda raw_backups raw_departures raw_removals snapshot_files
WITH chain_of AS (
  SELECT
    b.backup_id,
    b.source,
    b.source_kind,
    b.number,
    CASE
      WHEN b.source_kind IN ('snapshot', 'changes')
      THEN '-'
      WHEN NOT MAX(CASE WHEN b.parent_place IS NULL THEN b.parent END) OVER (PARTITION BY b.source) IS NULL
      THEN '-'
      ELSE b.base
    END AS base,
    TRY_CAST(TIMESTAMP_MICROS(b.finished_at) AS DATE) AS day,
    b.files,
    b.bytes,
    b.state <> 'deleted' AS there
  FROM raw_backups AS b
  LEFT JOIN (
    SELECT DISTINCT
      backup_id
    FROM raw_removals
  ) AS g
    ON b.backup_id = g.backup_id
  WHERE
    b.state IN ('complete', 'out_of_sync')
    OR (
      b.state = 'deleted'
      AND (
        b.source_kind = 'snapshot' OR NOT g.backup_id IS NULL
      )
    )
), passed AS (
  SELECT
    c.source,
    c.base,
    c.day,
    n.day AS gone_day,
    CAST(SUM(s.bytes) AS BIGINT) AS bytes
  FROM snapshot_files AS s
  JOIN chain_of AS c
    ON s.backup_id = c.backup_id
  JOIN chain_of AS n
    ON s.gone_by = n.backup_id
  GROUP BY
    c.source,
    c.base,
    c.day,
    n.day
), events AS (
  SELECT
    source,
    base,
    day,
    1 AS backups,
    CASE WHEN there THEN number END AS number,
    files AS new_files,
    bytes AS new_bytes,
    0 AS removed_bytes,
    0 AS gone_bytes,
    0 AS passed_bytes
  FROM chain_of
  UNION ALL
  SELECT
    c.source,
    c.base,
    TRY_CAST(TIMESTAMP_MICROS(r."at") AS DATE) AS day,
    0 AS backups,
    TRY_CAST(NULL AS BIGINT) AS number,
    0 AS new_files,
    0 AS new_bytes,
    r.bytes AS removed_bytes,
    CASE
      WHEN c.source_kind = 'snapshot'
      OR NOT g.path IS NULL
      OR (
        NOT r.files IS NULL AND r.reason = 'compacted'
      )
      THEN -r.bytes
      ELSE 0
    END AS gone_bytes,
    0 AS passed_bytes
  FROM raw_removals AS r
  JOIN chain_of AS c
    ON r.backup_id = c.backup_id
  LEFT JOIN raw_departures AS g
    ON r.destination = g.destination AND r.path = g.path
  UNION ALL
  SELECT
    c.source,
    c.base,
    n.day,
    0 AS backups,
    TRY_CAST(NULL AS BIGINT) AS number,
    0 AS new_files,
    0 AS new_bytes,
    0 AS removed_bytes,
    d.bytes AS gone_bytes,
    0 AS passed_bytes
  FROM raw_departures AS d
  JOIN chain_of AS c
    ON d.backup_id = c.backup_id
  JOIN chain_of AS n
    ON d.source = n.source AND d.gone_in = n.number AND c.base = n.base
  UNION ALL
  SELECT
    p.source,
    p.base,
    p.gone_day AS day,
    0 AS backups,
    TRY_CAST(NULL AS BIGINT) AS number,
    0 AS new_files,
    0 AS new_bytes,
    0 AS removed_bytes,
    CASE WHEN p.gone_day > p.day THEN p.bytes ELSE 0 END AS gone_bytes,
    CASE WHEN p.gone_day > p.day THEN 0 ELSE p.bytes END AS passed_bytes
  FROM passed AS p
), days AS (
  SELECT
    source,
    base,
    day,
    SUM(backups) AS backups,
    MAX(number) AS number,
    SUM(new_files) AS new_files,
    SUM(new_bytes) AS new_bytes,
    SUM(removed_bytes) AS removed_bytes,
    SUM(gone_bytes) AS gone_bytes,
    SUM(passed_bytes) AS passed_bytes
  FROM events
  GROUP BY
    source,
    base,
    day
), totals AS (
  SELECT
    source,
    day,
    SUM(backups) AS backups,
    MAX(number) AS number,
    SUM(new_files) AS new_files,
    SUM(new_bytes) AS new_bytes,
    SUM(removed_bytes) AS removed_bytes
  FROM days
  GROUP BY
    source,
    day
), dated AS (
  SELECT
    t.*,
    SUM(t.new_bytes - t.removed_bytes) OVER upto AS held_bytes,
    MAX(t.number) OVER upto AS newest
  FROM totals AS t
  WINDOW upto AS (
    PARTITION BY t.source
    ORDER BY t.day NULLS FIRST
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )
)
SELECT
  d.source,
  d.day,
  TRY_CAST(MAX(d.backups) AS BIGINT) AS backups,
  TRY_CAST(MAX(d.new_files) AS BIGINT) AS new_files,
  TRY_CAST(MAX(d.new_bytes) AS BIGINT) AS new_bytes,
  TRY_CAST(COALESCE(
    SUM(
      CASE WHEN e.day < d.day THEN e.new_bytes - e.passed_bytes ELSE 0 END - e.removed_bytes - e.gone_bytes
    ),
    0
  ) AS BIGINT) AS referenced_bytes,
  TRY_CAST(MAX(d.removed_bytes) AS BIGINT) AS removed_bytes,
  TRY_CAST(MAX(d.held_bytes) AS BIGINT) AS held_bytes
FROM dated AS d
LEFT JOIN chain_of AS c
  ON d.source = c.source AND d.newest = c.number
LEFT JOIN days AS e
  ON c.source = e.source AND c.base = e.base AND e.day <= d.day
GROUP BY
  d.source,
  d.day

-- d5d42679b089f07f faulty_backups own_kinds raw_backups
WITH ordered AS (
  SELECT
    b.backup_id,
    b.source,
    b.base,
    b.present,
    b.place,
    b.parent_place,
    b.faulty,
    ROW_NUMBER() OVER chain AS link,
    COUNT(*) OVER (PARTITION BY b.source, b.base) + 1 AS beyond,
    b.present AND b.parent_place < LAG(b.place) OVER chain AS turns
  FROM (
    SELECT
      r.*,
      NOT f.backup_id IS NULL AS faulty,
      r.state = 'complete' OR (
        r.state = 'out_of_sync' AND k.source_kind IS NULL
      ) AS present
    FROM raw_backups AS r
    LEFT JOIN own_kinds AS k
      ON r.source_kind = k.source_kind
    LEFT JOIN faulty_backups AS f
      ON r.backup_id = f.backup_id
  ) AS b
  WINDOW chain AS (PARTITION BY b.source, b.base ORDER BY b.place NULLS FIRST, b.number NULLS FIRST)
), replaced AS (
  SELECT
    o.backup_id,
    MIN(t.link) AS unlinked
  FROM ordered AS o
  JOIN ordered AS t
    ON o.source = t.source
    AND o.base = t.base
    AND o.link < t.link
    AND o.place > t.parent_place
  WHERE
    t.turns
  GROUP BY
    o.backup_id
), linked AS (
  SELECT
    o.*,
    COALESCE(r.unlinked, o.beyond) AS unlinked
  FROM ordered AS o
  LEFT JOIN replaced AS r
    ON o.backup_id = r.backup_id
), ends AS (
  SELECT
    source,
    base,
    unlinked,
    SUM(place - COALESCE(parent_place, 0)) AS span,
    SUM(CASE WHEN faulty THEN 1 ELSE 0 END) AS faults
  FROM linked
  WHERE
    present AND unlinked < beyond
  GROUP BY
    source,
    base,
    unlinked
), reached AS (
  SELECT
    l.*,
    SUM(
      CASE WHEN l.present THEN l.place - COALESCE(l.parent_place, 0) ELSE 0 END - COALESCE(e.span, 0)
    ) OVER (
      PARTITION BY l.source, l.base
      ORDER BY l.link NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS reach,
    SUM(CASE WHEN l.present AND l.faulty THEN 1 ELSE 0 END - COALESCE(e.faults, 0)) OVER (
      PARTITION BY l.source, l.base
      ORDER BY l.link NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS faults
  FROM linked AS l
  LEFT JOIN ends AS e
    ON l.source = e.source AND l.base = e.base AND l.link = e.unlinked
)
SELECT
  b.backup_id,
  b.number,
  b.source,
  b.source_kind,
  b.destination,
  b.kind,
  b.level,
  b.parent,
  b.base,
  b.chain_position,
  b.place,
  b.parent_place,
  b.branch,
  b.state,
  b.ts_domain,
  b.start_ts,
  b.end_ts,
  b.started_at,
  b.finished_at,
  b.files,
  b.bytes,
  b.entries,
  b.digest,
  b.isolation,
  b.codec,
  b.created_by,
  b.tool,
  b.note,
  b.runner,
  r.link,
  r.unlinked,
  b.state = 'complete' AND r.reach = b.place AS chained,
  b.state = 'complete'
  AND r.reach = b.place
  AND CASE WHEN b.source_kind = 'changes' THEN NOT r.faulty ELSE r.faults = 0 END AS intact,
  TIMESTAMP_MILLIS(b.start_ts // CASE b.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END) AS start_time,
  TIMESTAMP_MILLIS(b.end_ts // CASE b.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END) AS end_time,
  TIMESTAMP_MICROS(b.started_at) AS started_time,
  TIMESTAMP_MICROS(b.finished_at) AS finished_time
FROM raw_backups AS b
JOIN reached AS r
  ON b.source = r.source AND b.backup_id = r.backup_id

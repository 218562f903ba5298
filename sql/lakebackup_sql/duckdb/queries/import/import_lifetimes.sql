-- b8525e366ca81e2b listed numbered present
WITH seen AS (
  SELECT
    b.source,
    b.place,
    COALESCE(l.scope, 'files') AS scope,
    COALESCE(l.region, '0') AS region,
    l.path,
    COALESCE(l.sha256, TRY_CAST(l.max_ts AS TEXT)) AS version,
    MAX(l.bytes) AS bytes,
    MAX(l.raw_bytes) AS raw_bytes,
    MAX(l.sha256) AS sha256,
    MAX(l.entries) AS entries,
    MIN(l.min_ts) AS min_ts,
    MAX(l.max_ts) AS max_ts,
    TRY_CAST(NULL AS TEXT) AS backup_id
  FROM listed AS l
  JOIN numbered AS b
    ON l.backup_id = b.backup_id
  GROUP BY
    b.source,
    b.place,
    COALESCE(l.scope, 'files'),
    COALESCE(l.region, '0'),
    l.path,
    COALESCE(l.sha256, TRY_CAST(l.max_ts AS TEXT))
  UNION ALL
  SELECT
    p.source,
    0 AS place,
    p.scope,
    p.region,
    p.path,
    CASE WHEN p.sha256 = '' THEN TRY_CAST(p.max_ts AS TEXT) ELSE p.sha256 END AS version,
    p.bytes,
    p.raw_bytes,
    p.sha256,
    p.entries,
    p.min_ts,
    p.max_ts,
    p.backup_id
  FROM present AS p
), runs AS (
  SELECT
    s.*,
    s.place - ROW_NUMBER() OVER (
      PARTITION BY s.source, s.scope, s.region, s.path, s.version
      ORDER BY s.place NULLS FIRST
    ) AS run
  FROM seen AS s
), lifetimes AS (
  SELECT
    source,
    scope,
    region,
    path,
    version,
    run,
    MIN(place) AS first_place,
    MAX(place) AS last_place,
    MAX(bytes) AS bytes,
    MAX(raw_bytes) AS raw_bytes,
    MAX(sha256) AS sha256,
    MAX(entries) AS entries,
    MIN(min_ts) AS min_ts,
    MAX(max_ts) AS max_ts,
    MAX(backup_id) AS backup_id
  FROM runs
  GROUP BY
    source,
    scope,
    region,
    path,
    version,
    run
)
SELECT
  COALESCE(l.backup_id, b.backup_id) AS backup_id,
  l.scope,
  l.region,
  l.path,
  l.bytes,
  l.raw_bytes,
  l.sha256,
  l.entries,
  l.min_ts,
  l.max_ts,
  l.first_place > 0 AS fresh,
  g.number AS gone_in
FROM lifetimes AS l
LEFT JOIN numbered AS b
  ON l.source = b.source AND l.first_place = b.place
LEFT JOIN numbered AS g
  ON l.source = g.source AND l.last_place + 1 = g.place
WHERE
  l.first_place > 0 OR NOT g.number IS NULL
ORDER BY
  l.source NULLS FIRST,
  l.scope NULLS FIRST,
  l.path NULLS FIRST,
  l.first_place NULLS FIRST

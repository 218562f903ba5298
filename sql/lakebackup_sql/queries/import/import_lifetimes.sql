-- Lifetimes of the files that another tool's manifests list (relation listed: a row a backup and file): a row for each
-- run of consecutive backups of a source that have a file unchanged. Relation numbered: the backups, place counts those
-- of a source from 1 in their order. Relation present: files that the source's newest backup in the catalog has, as
-- place 0. A file is the same as long as its SHA-256 is, or without one its last change (max_ts).
-- fresh: the run begins with a listed backup. gone_in: number of the backup that does not have it any more.
WITH seen AS (
  SELECT
    b.source, b.place, COALESCE(l.scope, 'files') AS scope, COALESCE(l.region, '0') AS region, l.path,
    COALESCE(l.sha256, CAST(l.max_ts AS STRING)) AS version,
    MAX(l.bytes) AS bytes, MAX(l.raw_bytes) AS raw_bytes, MAX(l.sha256) AS sha256, MAX(l.entries) AS entries,
    MIN(l.min_ts) AS min_ts, MAX(l.max_ts) AS max_ts,
    CAST(NULL AS STRING) AS backup_id
  FROM listed AS l
  JOIN numbered AS b ON l.backup_id = b.backup_id
  GROUP BY
    b.source, b.place, COALESCE(l.scope, 'files'), COALESCE(l.region, '0'), l.path,
    COALESCE(l.sha256, CAST(l.max_ts AS STRING))
  UNION ALL
  SELECT
    p.source, 0 AS place, p.scope, p.region, p.path,
    CASE WHEN p.sha256 = '' THEN CAST(p.max_ts AS STRING) ELSE p.sha256 END AS version,
    p.bytes, p.raw_bytes, p.sha256, p.entries, p.min_ts, p.max_ts, p.backup_id
  FROM present AS p
),
runs AS (
  SELECT
    s.*,
    s.place - ROW_NUMBER() OVER (
      PARTITION BY s.source, s.scope, s.region, s.path, s.version ORDER BY s.place
    ) AS run
  FROM seen AS s
),
lifetimes AS (
  SELECT
    source, scope, region, path, version, run,
    MIN(place) AS first_place, MAX(place) AS last_place,
    MAX(bytes) AS bytes, MAX(raw_bytes) AS raw_bytes, MAX(sha256) AS sha256, MAX(entries) AS entries,
    MIN(min_ts) AS min_ts, MAX(max_ts) AS max_ts, MAX(backup_id) AS backup_id
  FROM runs
  GROUP BY source, scope, region, path, version, run
)
SELECT
  COALESCE(l.backup_id, b.backup_id) AS backup_id,
  l.scope, l.region, l.path, l.bytes, l.raw_bytes, l.sha256, l.entries, l.min_ts, l.max_ts,
  l.first_place > 0 AS fresh,
  g.number AS gone_in
FROM lifetimes AS l
LEFT JOIN numbered AS b ON l.source = b.source AND l.first_place = b.place
LEFT JOIN numbered AS g ON l.source = g.source AND l.last_place + 1 = g.place
WHERE l.first_place > 0 OR g.number IS NOT NULL
ORDER BY l.source, l.scope, l.path, l.first_place

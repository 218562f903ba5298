-- b7359743a64491b4 backups chain_points files scopes
SELECT
  t.scope,
  t.epoch,
  t.backup_id,
  t.generation,
  t.regions,
  t.replication,
  t.settings,
  t.covers_to AS end_ts,
  TRY_CAST(COUNT(f.path) AS BIGINT) AS files,
  TRY_CAST(COALESCE(SUM(f.bytes), 0) AS BIGINT) AS bytes,
  TRY_CAST(COALESCE(SUM(f.entries), 0) AS BIGINT) AS entries,
  TRY_CAST(COALESCE(SUM(f.null_keys), 0) AS BIGINT) AS null_keys,
  MAX(CASE WHEN e.number < t.number AND t.number = t.place THEN 1 ELSE 0 END) = 1 AS compacted
FROM chain_points AS t
LEFT JOIN (
  SELECT
    s.scope,
    s.epoch,
    COALESCE(s.complete_ts, b.end_ts) AS end_ts,
    MIN(b.number) AS number
  FROM scopes AS s
  JOIN backups AS b
    ON s.backup_id = b.backup_id
  WHERE
    b.source = $source
  GROUP BY
    s.scope,
    s.epoch,
    COALESCE(s.complete_ts, b.end_ts)
) AS e
  ON t.scope = e.scope AND t.epoch = e.epoch AND t.covers_to = e.end_ts
LEFT JOIN (
  SELECT
    d.scope,
    d.epoch,
    d.generation,
    d.path,
    d.bytes,
    d.entries,
    d.null_keys,
    b.base,
    b.link,
    b.unlinked
  FROM files AS d
  JOIN backups AS b
    ON d.backup_id = b.backup_id
  WHERE
    d.source = $source AND d.role = 'data' AND b.state = 'complete'
) AS f
  ON t.scope = f.scope
  AND t.epoch = f.epoch
  AND t.generation = f.generation
  AND t.base = f.base
  AND f.link <= t.link
  AND t.link < f.unlinked
WHERE
  t.source = $source AND t.newest
GROUP BY
  t.scope,
  t.epoch,
  t.backup_id,
  t.generation,
  t.regions,
  t.replication,
  t.settings,
  t.covers_to
ORDER BY
  t.scope NULLS FIRST

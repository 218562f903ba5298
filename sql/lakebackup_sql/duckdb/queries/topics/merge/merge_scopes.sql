-- 91439e62590777e1 files scopes to_merge
SELECT
  h.scope,
  h.epoch,
  h.generation,
  h.regions,
  h.replication,
  h.settings,
  h.complete_ts,
  COALESCE(f.files, 0) AS files,
  COALESCE(f.bytes, 0) AS bytes,
  COALESCE(f.entries, 0) AS entries
FROM (
  SELECT
    s.scope,
    s.epoch,
    s.generation,
    MAX(CASE WHEN s.backup_id = $last THEN s.regions END) AS regions,
    MAX(CASE WHEN s.backup_id = $last THEN s.replication END) AS replication,
    MAX(CASE WHEN s.backup_id = $last THEN s.settings END) AS settings,
    MAX(CASE WHEN s.backup_id = $last THEN s.complete_ts END) AS complete_ts
  FROM scopes AS s
  JOIN to_merge AS m
    ON s.backup_id = m.backup_id
  WHERE
    s.source = $source
  GROUP BY
    s.scope,
    s.epoch,
    s.generation
) AS h
LEFT JOIN (
  SELECT
    d.scope,
    d.epoch,
    d.generation,
    TRY_CAST(COUNT(*) AS BIGINT) AS files,
    CAST(SUM(d.bytes) AS BIGINT) AS bytes,
    CAST(SUM(d.entries) AS BIGINT) AS entries
  FROM files AS d
  JOIN to_merge AS m
    ON d.backup_id = m.backup_id
  WHERE
    d.source = $source AND d.role = 'data'
  GROUP BY
    d.scope,
    d.epoch,
    d.generation
) AS f
  ON h.scope = f.scope AND h.epoch = f.epoch AND h.generation = f.generation
ORDER BY
  h.scope NULLS FIRST,
  h.epoch NULLS FIRST,
  h.generation NULLS FIRST

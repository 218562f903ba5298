-- 0365686af529e45e backups log_tasks raw_log_tasks
SELECT
  t.source,
  t.state,
  t."at",
  t.actor,
  t.settings,
  t.detail,
  COALESCE(e.errors, 0) AS errors,
  COALESCE(s.flushes, 0) AS flushes,
  COALESCE(s.files, 0) AS files,
  COALESCE(s.bytes, 0) AS bytes,
  COALESCE(s.entries, 0) AS entries,
  s.finished_at,
  n.ts_domain,
  n.start_ts,
  n.end_ts AS checkpoint_ts
FROM log_tasks AS t
LEFT JOIN (
  SELECT
    source,
    COUNT(detail) AS errors
  FROM raw_log_tasks
  GROUP BY
    source
) AS e
  ON t.source = e.source
LEFT JOIN (
  SELECT
    source,
    COUNT(*) AS flushes,
    CAST(SUM(files) AS BIGINT) AS files,
    CAST(SUM(bytes) AS BIGINT) AS bytes,
    CAST(SUM(entries) AS BIGINT) AS entries,
    MAX(finished_at) AS finished_at
  FROM backups
  WHERE
    source_kind = 'changes' AND kind = 'log'
  GROUP BY
    source
) AS s
  ON t.source = s.source
LEFT JOIN (
  SELECT
    source,
    ts_domain,
    end_ts,
    MIN(start_ts) OVER (PARTITION BY source) AS start_ts,
    ROW_NUMBER() OVER (PARTITION BY source ORDER BY number DESC) AS nth
  FROM backups
  WHERE
    source_kind = 'changes' AND kind = 'log' AND state = 'complete'
) AS n
  ON t.source = n.source AND n.nth = 1
WHERE
  TRY_CAST($source AS TEXT) IS NULL OR t.source = $source
ORDER BY
  t.source NULLS FIRST

-- Of each topic the newest chosen files (relation selected: rows as of restore_files) that have :most bytes together, the
-- newest always: in their records a restore looks for ids of schemas. Topics of registries (:registries, separated by
-- commas) are left out.
SELECT
  f.scope, f.epoch, f.region, f.start_position, f.end_position, f.destination, f.path, f.format, f.codec, f.bytes,
  f.sha256, f.entries
FROM (
  SELECT
    s.*,
    SUM(s.bytes) OVER (
      PARTITION BY s.scope
      ORDER BY s.max_ts DESC, s.end_position DESC, s.path
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS until
  FROM selected AS s
  WHERE NOT ARRAY_CONTAINS(SPLIT(:registries, ','), s.scope)
) AS f
WHERE f.until - f.bytes < :most
ORDER BY f.scope, f.path

-- abf4236ca47ffae7 selected
SELECT
  f.scope,
  f.epoch,
  f.region,
  f.start_position,
  f.end_position,
  f.destination,
  f.path,
  f.format,
  f.codec,
  f.bytes,
  f.sha256,
  f.entries
FROM (
  SELECT
    s.*,
    SUM(s.bytes) OVER (
      PARTITION BY s.scope
      ORDER BY s.max_ts DESC, s.end_position DESC, s.path NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS until
  FROM selected AS s
  WHERE
    NOT ARRAY_CONTAINS(STR_SPLIT_REGEX($registries, ','), s.scope)
) AS f
WHERE
  f.until - f.bytes < $most
ORDER BY
  f.scope NULLS FIRST,
  f.path NULLS FIRST

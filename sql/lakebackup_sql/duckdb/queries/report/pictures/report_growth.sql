-- 6cdff35a3ffde0b1 growth
SELECT
  g.source,
  g.first_day * 86400000 AS from_ts,
  (
    g.first_day + g.days
  ) * 86400000 AS to_ts,
  CAST(SUM(g.new_bytes) AS BIGINT) AS new_bytes,
  CAST(SUM(g.removed_bytes) AS BIGINT) AS removed_bytes,
  ARG_MAX(g.referenced_bytes, g.day) AS referenced_bytes,
  ARG_MAX(g.held_bytes, g.day) AS held_bytes
FROM (
  SELECT
    d.*,
    d.day - (
      d.day - d.oldest
    ) % d.days AS first_day
  FROM (
    SELECT
      n.*,
      MIN(n.day) OVER () AS oldest,
      1 + TRY_CAST(FLOOR((
        MAX(n.day) OVER () - MIN(n.day) OVER ()
      ) / NULLIF($steps, 0)) AS BIGINT) AS days
    FROM (
      SELECT
        source,
        TRY_CAST(DATE_DIFF('DAY', CAST('1970-01-01' AS DATE), CAST(day AS DATE)) AS BIGINT) AS day,
        new_bytes,
        removed_bytes,
        referenced_bytes,
        held_bytes
      FROM growth
    ) AS n
  ) AS d
) AS g
GROUP BY
  g.source,
  g.first_day,
  g.days
ORDER BY
  g.source NULLS FIRST,
  from_ts NULLS FIRST

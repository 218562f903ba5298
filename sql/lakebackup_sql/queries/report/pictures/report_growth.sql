-- `growth` for a picture: days, or spans of so many days that there are about :steps of them, the same for all sources.
SELECT
  g.source,
  g.first_day * 86400000 AS from_ts,
  (g.first_day + g.days) * 86400000 AS to_ts,
  CAST(SUM(g.new_bytes) AS BIGINT) AS new_bytes,
  CAST(SUM(g.removed_bytes) AS BIGINT) AS removed_bytes,
  MAX_BY(g.referenced_bytes, g.day) AS referenced_bytes,
  MAX_BY(g.held_bytes, g.day) AS held_bytes
FROM (
  SELECT d.*, d.day - MOD(d.day - d.oldest, d.days) AS first_day
  FROM (
    SELECT
      n.*,
      MIN(n.day) OVER () AS oldest,
      1 + CAST(FLOOR((MAX(n.day) OVER () - MIN(n.day) OVER ()) / :steps) AS BIGINT) AS days
    FROM (
      SELECT
        source,
        CAST(DATEDIFF(day, DATE'1970-01-01') AS BIGINT) AS day,
        new_bytes, removed_bytes, referenced_bytes, held_bytes
      FROM growth
    ) AS n
  ) AS d
) AS g
GROUP BY g.source, g.first_day, g.days
ORDER BY g.source, from_ts

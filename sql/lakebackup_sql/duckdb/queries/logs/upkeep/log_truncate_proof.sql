-- 6957d111d5970474 departures doomed files leaving
SELECT
  g.path,
  g.cf,
  g.max_ts
FROM (
  SELECT
    f.*
  FROM files AS f
  JOIN doomed AS d
    ON f.destination = d.destination AND f.path = d.path
  ANTI JOIN departures AS e
    ON f.destination = e.destination AND f.path = e.path
  ANTI JOIN leaving AS v
    ON f.backup_id = v.backup_id
) AS g
WHERE
  g.format <> 'log-arrow-1'
  OR (
    g.cf = 'write' AND g.max_ts > $cut
  )
  OR (
    g.cf = 'default'
    AND EXISTS(
      SELECT
        1
      FROM files AS w
      WHERE
        w.source = $source
        AND w.cf = 'write'
        AND w.max_ts > $cut
        AND w.min_begin_ts <= g.max_ts
    )
  )
ORDER BY
  g.path NULLS FIRST
LIMIT 10

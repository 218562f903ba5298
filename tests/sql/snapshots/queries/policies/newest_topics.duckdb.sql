SELECT
  s.scope,
  s.epoch
FROM raw_scopes AS s
JOIN (
  SELECT
    b.backup_id
  FROM (
    SELECT
      c.backup_id,
      c.place,
      c.number,
      MAX(CASE WHEN c.state = 'complete' AND c.intact THEN 1 ELSE 0 END) OVER (PARTITION BY c.place) AS usable
    FROM backups AS c
    ANTI JOIN (
      SELECT
        l.place
      FROM raw_backups AS l
      JOIN raw_backups AS e
        ON l.source = e.source AND l.end_ts = e.end_ts AND e.number < l.number
      WHERE
        l.source = $source AND l.number = l.place
    ) AS k
      ON c.place = k.place
    WHERE
      c.source = $source
  ) AS b
  ORDER BY
    b.usable DESC,
    b.place DESC,
    b.number NULLS FIRST
  LIMIT 1
) AS n
  ON s.backup_id = n.backup_id
ORDER BY
  s.scope NULLS FIRST

-- c2467795ad48c5f4 backups compactions raw_scopes
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
    ANTI JOIN compactions AS k
      ON c.source = k.source AND c.place = k.place
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

SELECT
  b.backup_id,
  b.source,
  b.source_kind,
  b.number,
  b.state,
  b.base,
  f.number AS first,
  m.moved
FROM raw_backups AS b
JOIN raw_backups AS f
  ON f.backup_id = b.base
CROSS JOIN (
  SELECT
    COUNT(*) AS moved
  FROM (
    SELECT
      scope,
      epoch,
      generation
    FROM scopes
    WHERE
      backup_id IN ($a, $b)
    GROUP BY
      scope,
      epoch,
      generation
    HAVING
      COUNT(DISTINCT backup_id) = 1
  ) AS s
) AS m
WHERE
  b.backup_id IN ($a, $b)
ORDER BY
  b.number NULLS FIRST

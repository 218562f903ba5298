-- 1eeb7ffee44d4332 backups needs scopes
SELECT
  b.backup_id,
  b.source,
  b.source_kind,
  b.number,
  b.place,
  b.state,
  b.base,
  b.link,
  b.unlinked,
  n.first,
  n.last,
  m.moved
FROM backups AS b
JOIN (
  SELECT
    k.backup_id,
    MIN(p.number) AS first,
    MAX(p.number) AS last
  FROM needs AS k
  JOIN backups AS p
    ON k.needed_id = p.backup_id
  WHERE
    k.backup_id IN ($a, $b)
  GROUP BY
    k.backup_id
) AS n
  ON b.backup_id = n.backup_id
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

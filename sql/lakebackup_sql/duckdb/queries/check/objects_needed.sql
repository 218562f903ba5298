-- 071673bc4d1ce42f backups faults files snapshot_files
WITH newest AS (
  SELECT
    b.source,
    b.base,
    b.link
  FROM backups AS b
  WHERE
    b.source = $source AND b.chained
  ORDER BY
    b.place DESC,
    b.number DESC
  LIMIT 1
), needed AS (
  SELECT
    f.path,
    f.bytes,
    f.backup_id
  FROM files AS f
  JOIN backups AS n
    ON f.backup_id = n.backup_id
  JOIN newest AS b
    ON n.source = b.source
    AND n.base = b.base
    AND n.link <= b.link
    AND b.link < n.unlinked
  WHERE
    f.destination = $destination AND f.role = 'data' AND n.source_kind <> 'snapshot'
  UNION
  SELECT
    f.path,
    f.bytes,
    f.backup_id
  FROM files AS f
  JOIN (
    SELECT DISTINCT
      s.path
    FROM snapshot_files AS s
    WHERE
      s.source = $source AND s.destination = $destination AND s.gone_in IS NULL
  ) AS w
    ON f.path = w.path
  WHERE
    f.destination = $destination
)
SELECT
  n.path,
  n.bytes,
  n.backup_id
FROM needed AS n
ANTI JOIN faults AS c
  ON c.destination = $destination AND n.path = c.path
WHERE
  STARTS_WITH(n.path, $folder)
ORDER BY
  n.path NULLS FIRST

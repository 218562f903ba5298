-- d79ff14c4ffd0658 snapshot_compared
WITH priced AS (
  SELECT
    s.*,
    CASE
      WHEN s.change IN ('gone', 'folder') OR NOT s.same_path IS NULL
      THEN $light
      WHEN s.scope = s.first_scope AND s.region = s.first_region AND s.name = s.first_name
      THEN s.bytes + $overhead
      ELSE $light
    END AS cost
  FROM snapshot_compared AS s
  WHERE
    s.change <> 'unchanged'
), regions AS (
  SELECT
    r.first_scope,
    r.first_region,
    SUM(r.cost) OVER (
      ORDER BY r.first_scope NULLS FIRST, r.first_region NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) - r.cost AS before,
    SUM(r.cost) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS total
  FROM (
    SELECT
      p.first_scope,
      p.first_region,
      SUM(p.cost) AS cost
    FROM priced AS p
    GROUP BY
      p.first_scope,
      p.first_region
  ) AS r
)
SELECT
  p.scope,
  p.region,
  p.name,
  p.role,
  p.folder,
  p.bytes,
  p.mtime_ns,
  p.mtime_ms,
  p.mode,
  p.links,
  p.device,
  p.inode,
  p.ctime_ns,
  p.added_in,
  p.change,
  p.same_destination,
  p.same_path,
  p.same_position,
  p.same_sha256,
  p.first_scope,
  p.first_region,
  p.first_name,
  TRY_CAST((
    r.before + SUM(p.cost) OVER (
      PARTITION BY p.first_scope, p.first_region
      ORDER BY p.first_name NULLS FIRST
      RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) - 1
  ) * $tasks // r.total AS INT) AS task
FROM priced AS p
JOIN regions AS r
  ON p.first_scope = r.first_scope AND p.first_region = r.first_region
ORDER BY
  task NULLS FIRST,
  p.first_scope NULLS FIRST,
  p.first_region NULLS FIRST,
  p.first_name NULLS FIRST,
  p.scope NULLS FIRST,
  p.region NULLS FIRST,
  p.name NULLS FIRST

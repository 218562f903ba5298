-- Every file of a snapshot that is not as it was (`snapshot_compared` has the rows of snapshot_changes), with the
-- number below :tasks of the task that handles it. A task takes neighbours, with the names of one file together, and
-- about as much as any other: a file that is copied costs its bytes and :overhead more, another row :light.
WITH priced AS (
  SELECT
    s.*,
    CASE
      WHEN s.change IN ('gone', 'folder') OR s.same_path IS NOT NULL THEN :light
      WHEN s.scope = s.first_scope AND s.region = s.first_region AND s.name = s.first_name THEN s.bytes + :overhead
      ELSE :light
    END AS cost
  FROM snapshot_compared AS s
  WHERE s.change <> 'unchanged'
),
regions AS (
  SELECT
    r.first_scope, r.first_region,
    SUM(r.cost) OVER (ORDER BY r.first_scope, r.first_region ROWS UNBOUNDED PRECEDING) - r.cost AS before,
    SUM(r.cost) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS total
  FROM (
    SELECT p.first_scope, p.first_region, SUM(p.cost) AS cost FROM priced AS p GROUP BY p.first_scope, p.first_region
  ) AS r
)
SELECT
  p.scope, p.region, p.name, p.role, p.folder, p.bytes, p.mtime_ns, p.mtime_ms, p.mode, p.links, p.device, p.inode,
  p.ctime_ns, p.added_in, p.change, p.same_destination, p.same_path, p.same_position, p.same_sha256, p.first_scope, p.first_region,
  p.first_name,
  -- Names of one file are peers in the order: they have one sum.
  CAST(
    (
      r.before
      + SUM(p.cost) OVER (
        PARTITION BY p.first_scope, p.first_region ORDER BY p.first_name RANGE UNBOUNDED PRECEDING
      )
      - 1
    ) * :tasks DIV r.total AS INT
  ) AS task
FROM priced AS p
JOIN regions AS r ON p.first_scope = r.first_scope AND p.first_region = r.first_region
ORDER BY task, p.first_scope, p.first_region, p.first_name, p.scope, p.region, p.name

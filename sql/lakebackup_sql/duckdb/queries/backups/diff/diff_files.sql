-- 39592d016971e975 sides
WITH places AS (
  SELECT
    COALESCE(n.destination, o.destination) AS destination,
    COALESCE(n.path, o.path) AS path,
    COALESCE(n.scope, o.scope) AS scope,
    COALESCE(n.region, o.region) AS region,
    o.bytes AS old_bytes,
    n.bytes,
    o.entries AS old_entries,
    n.entries,
    o.sha256 AS old_sha256,
    n.sha256
  FROM (
    SELECT
      *
    FROM sides
    WHERE
      in_b
  ) AS n
  FULL OUTER JOIN (
    SELECT
      *
    FROM sides
    WHERE
      in_a
  ) AS o
    ON n.destination = o.destination AND n.path = o.path
), shared AS (
  SELECT DISTINCT
    n.sha256 AS contents
  FROM (
    SELECT
      sha256
    FROM places
    WHERE
      old_sha256 IS NULL
  ) AS n
  JOIN (
    SELECT
      old_sha256
    FROM places
    WHERE
      sha256 IS NULL
  ) AS o
    ON n.sha256 = o.old_sha256
), halves AS (
  SELECT
    h.*,
    c.contents,
    ROW_NUMBER() OVER (
      PARTITION BY c.contents, h.sha256 IS NULL
      ORDER BY h.destination NULLS FIRST, h.path NULLS FIRST
    ) AS nth
  FROM places AS h
  JOIN shared AS c
    ON COALESCE(h.old_sha256, h.sha256) = c.contents
  WHERE
    h.old_sha256 IS NULL OR h.sha256 IS NULL
)
SELECT
  CASE
    WHEN p.old_sha256 IS NULL
    THEN 'added'
    WHEN p.sha256 IS NULL
    THEN 'gone'
    ELSE 'changed'
  END AS change,
  p.destination,
  p.scope,
  p.region,
  p.path,
  TRY_CAST(NULL AS TEXT) AS old_path,
  p.bytes,
  p.old_bytes,
  p.entries,
  p.old_entries
FROM places AS p
LEFT JOIN shared AS c
  ON c.contents = COALESCE(p.old_sha256, p.sha256)
WHERE
  (
    c.contents IS NULL AND (
      p.old_sha256 IS NULL OR p.sha256 IS NULL
    )
  )
  OR p.old_sha256 <> p.sha256
UNION ALL
SELECT
  CASE
    WHEN COUNT(h.old_sha256) = 0
    THEN 'added'
    WHEN COUNT(h.sha256) = 0
    THEN 'gone'
    ELSE 'moved'
  END AS change,
  MAX(h.destination) AS destination,
  COALESCE(MAX(CASE WHEN NOT h.sha256 IS NULL THEN h.scope END), MAX(h.scope)) AS scope,
  COALESCE(MAX(CASE WHEN NOT h.sha256 IS NULL THEN h.region END), MAX(h.region)) AS region,
  COALESCE(MAX(CASE WHEN NOT h.sha256 IS NULL THEN h.path END), MAX(h.path)) AS path,
  CASE WHEN COUNT(*) = 2 THEN MAX(CASE WHEN h.sha256 IS NULL THEN h.path END) END AS old_path,
  MAX(h.bytes) AS bytes,
  MAX(h.old_bytes) AS old_bytes,
  MAX(h.entries) AS entries,
  MAX(h.old_entries) AS old_entries
FROM halves AS h
GROUP BY
  h.contents,
  h.nth

-- 6c3ddf86bb3a8887 snapshot_files snapshot_listed
SELECT
  l.scope,
  l.region,
  l.name,
  l.folder,
  l.bytes,
  l.mtime_ns,
  l.inode
FROM snapshot_listed AS l
LEFT JOIN (
  SELECT
    f.scope,
    f.region,
    f.name,
    f.bytes,
    f.mtime_ms,
    f.ctime_ns,
    f.inode
  FROM snapshot_files AS f
  WHERE
    f.source = $source AND f.gone_in IS NULL
) AS v
  ON l.scope = v.scope
  AND l.region = v.region
  AND l.name = v.name
  AND l.bytes = v.bytes
  AND l.mtime_ms = v.mtime_ms
LEFT JOIN (
  SELECT DISTINCT
    s.bytes
  FROM snapshot_files AS s
  WHERE
    s.source = $source AND s.stored AND NOT s.sha256 IS NULL
) AS z
  ON l.bytes = z.bytes
WHERE
  l.role <> 'folder'
  AND NOT l.always
  AND (
    (
      $verify AND NOT v.name IS NULL
    )
    OR (
      NOT $trust_mtime
      AND NOT v.name IS NULL
      AND (
        COALESCE(v.inode <> l.inode, FALSE)
        OR (
          l.by_ctime AND COALESCE(v.ctime_ns <> l.ctime_ns, TRUE)
        )
      )
    )
    OR (
      $find_same AND v.name IS NULL AND NOT z.bytes IS NULL
    )
  )

-- b46f5f414941c3b7 snapshot_selected
SELECT
  s.target,
  s.bytes,
  s.mtime_ms,
  s.mode,
  s.links,
  s.sha256,
  s.destination,
  s.path,
  s.position
FROM snapshot_selected AS s
WHERE
  SUBSTRING(MD5(s.path), 1, 2) >= $first AND SUBSTRING(MD5(s.path), 1, 2) < $beyond
ORDER BY
  s.destination NULLS FIRST,
  s.path NULLS FIRST,
  s.position NULLS FIRST,
  s.bytes NULLS FIRST,
  s.target NULLS FIRST

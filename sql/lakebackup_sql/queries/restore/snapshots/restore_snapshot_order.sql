-- The files of a restore (relation snapshot_selected) as their bytes lie in the objects. Of all objects those alone
-- whose path has a digest from :first to before :beyond (two hex digits).
SELECT s.target, s.bytes, s.mtime_ms, s.mode, s.links, s.sha256, s.destination, s.path, s.position
FROM snapshot_selected AS s
WHERE SUBSTRING(MD5(s.path), 1, 2) >= :first
  AND SUBSTRING(MD5(s.path), 1, 2) < :beyond
ORDER BY s.destination, s.path, s.position, s.bytes, s.target

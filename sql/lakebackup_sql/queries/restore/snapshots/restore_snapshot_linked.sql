-- Bytes of a restore's files (relation snapshot_selected) that are not written, since the file is a hard link of
-- another.
SELECT CAST(COALESCE(SUM(t.bytes * (t.names - 1)), 0) AS BIGINT) AS bytes
FROM (
  SELECT s.bytes, COUNT(*) AS names
  FROM snapshot_selected AS s
  WHERE s.links > 1
  GROUP BY s.destination, s.path, s.position, s.bytes, s.mtime_ms, s.mode, s.sha256
) AS t

-- The files of a restore (relation snapshot_selected) as their bytes lie in the objects, in shares of about :share bytes;
-- each file costs :each bytes more than it has. Files with one place are in one share.
SELECT
  w.weight DIV :share AS share, w.target, w.bytes, w.mtime_ms, w.mode, w.links, w.sha256, w.destination, w.path,
  w.position
FROM (
  SELECT
    s.*,
    CAST(SUM(COALESCE(s.bytes, 0) + :each) OVER (ORDER BY s.destination, s.path, s.position) AS BIGINT) AS weight
  FROM snapshot_selected AS s
) AS w
ORDER BY w.destination, w.path, w.position, w.bytes, w.target

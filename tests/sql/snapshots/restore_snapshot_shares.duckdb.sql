SELECT
  w.weight // $share AS share,
  w.target,
  w.bytes,
  w.mtime_ms,
  w.mode,
  w.links,
  w.sha256,
  w.destination,
  w.path,
  w.position
FROM (
  SELECT
    s.*,
    TRY_CAST(SUM(COALESCE(s.bytes, 0) + $each) OVER (ORDER BY s.destination NULLS FIRST, s.path NULLS FIRST, s.position NULLS FIRST) AS BIGINT) AS weight
  FROM snapshot_selected AS s
) AS w
ORDER BY
  w.destination NULLS FIRST,
  w.path NULLS FIRST,
  w.position NULLS FIRST,
  w.bytes NULLS FIRST,
  w.target NULLS FIRST

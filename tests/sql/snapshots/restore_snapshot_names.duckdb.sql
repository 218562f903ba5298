SELECT
  s.target,
  s.added_in,
  s.destination,
  s.path,
  s.position,
  s.bytes,
  s.mtime_ms,
  s.mode,
  s.sha256
FROM snapshot_selected AS s
ORDER BY
  CASE
    WHEN $fold
    THEN LOWER(REPLACE(s.target, '/', CHR(0)))
    ELSE REPLACE(s.target, '/', CHR(0))
  END NULLS FIRST,
  s.target NULLS FIRST,
  s.added_in NULLS FIRST

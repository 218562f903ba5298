-- b3736acf1912829f snapshot_chosen snapshot_files
SELECT
  f.source,
  f.scope,
  f.region,
  f.added_in,
  f.bytes,
  f.mtime_ms,
  f.mode,
  f.links,
  f.sha256,
  f.destination,
  f.path,
  f.position,
  f.stored,
  CASE
    WHEN f.scope = '-' OR $layout = 'flat'
    THEN ''
    WHEN $layout = 'yugabyte'
    THEN 'table-' || f.scope || '/'
    ELSE f.scope || '/'
  END || CASE
    WHEN f.region = '-' OR $layout = 'flat'
    THEN ''
    WHEN $layout = 'yugabyte'
    THEN 'tablet-' || f.region || '/'
    ELSE f.region || '/'
  END || f.name AS target
FROM snapshot_files AS f
WHERE
  (
    f.source = $source
    AND f.added_in <= $number
    AND (
      f.gone_in IS NULL OR f.gone_in > $number
    )
    AND (
      TRY_CAST($scopes AS TEXT[]) IS NULL
      OR ARRAY_CONTAINS(TRY_CAST($scopes AS TEXT[]), f.scope)
    )
    AND (
      TRY_CAST($regions AS TEXT[]) IS NULL
      OR ARRAY_CONTAINS(TRY_CAST($regions AS TEXT[]), f.region)
    )
  )
  OR EXISTS(
    SELECT
      1
    FROM snapshot_chosen AS c
    WHERE
      c.source = f.source
      AND c.scope = f.scope
      AND c.region = f.region
      AND c.name = f.name
      AND c.added_in = f.added_in
  )

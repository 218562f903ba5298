-- d0c623a1d9c26e78 snapshot_folders snapshot_selected
WITH folders AS (
  SELECT
    f.mode,
    f.mtime_ms,
    f.added_in,
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
  FROM snapshot_folders AS f
  WHERE
    f.source = $source
    AND f.added_in <= COALESCE($number, (
      SELECT
        MAX(s.added_in)
      FROM snapshot_selected AS s
    ))
    AND (
      $number IS NULL OR f.gone_in IS NULL OR f.gone_in > $number
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
SELECT
  d.target,
  d.mode,
  d.mtime_ms
FROM (
  SELECT
    f.*,
    ROW_NUMBER() OVER (PARTITION BY f.target ORDER BY f.added_in DESC) AS place
  FROM folders AS f
) AS d
WHERE
  d.place = 1
ORDER BY
  REPLACE(d.target, '/', CHR(0)) NULLS FIRST

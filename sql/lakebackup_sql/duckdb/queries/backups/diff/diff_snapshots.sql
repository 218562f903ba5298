-- fcb127d04d06c1fa snapshot_files
SELECT
  CASE
    WHEN o.name IS NULL
    THEN 'added'
    WHEN n.name IS NULL
    THEN 'gone'
    ELSE 'changed'
  END AS change,
  COALESCE(n.destination, o.destination) AS destination,
  COALESCE(n.scope, o.scope) AS scope,
  COALESCE(n.region, o.region) AS region,
  COALESCE(n.name, o.name) AS path,
  TRY_CAST(NULL AS TEXT) AS old_path,
  n.bytes,
  o.bytes AS old_bytes,
  TRY_CAST(NULL AS BIGINT) AS entries,
  TRY_CAST(NULL AS BIGINT) AS old_entries
FROM (
  SELECT
    scope,
    region,
    name,
    bytes,
    sha256,
    destination
  FROM snapshot_files
  WHERE
    source = $source
    AND added_in <= $b_number
    AND COALESCE(gone_in > $b_number, TRUE)
    AND (
      added_in > $a_number OR COALESCE(gone_in <= $a_number, FALSE)
    )
) AS n
FULL OUTER JOIN (
  SELECT
    scope,
    region,
    name,
    bytes,
    sha256,
    destination
  FROM snapshot_files
  WHERE
    source = $source
    AND added_in <= $a_number
    AND COALESCE(gone_in > $a_number, TRUE)
    AND (
      added_in > $b_number OR COALESCE(gone_in <= $b_number, FALSE)
    )
) AS o
  ON n.scope = o.scope AND n.region = o.region AND n.name = o.name
WHERE
  COALESCE(n.sha256 <> o.sha256, TRUE)
ORDER BY
  change NULLS FIRST,
  scope NULLS FIRST,
  region NULLS FIRST,
  path NULLS FIRST

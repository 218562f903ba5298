-- d193dcdc59633646 chain_points
SELECT
  source,
  scope,
  epoch,
  destination,
  backup_id,
  base,
  number,
  place,
  link,
  kind,
  regions,
  replication,
  settings,
  generation,
  covers_from,
  covers_to,
  TRUE AS newest,
  ts_domain,
  covers_from_time,
  covers_to_time
FROM chain_points
WHERE
  (
    TRY_CAST($backup_id AS TEXT) IS NULL OR backup_id = $backup_id
  )
  AND (
    TRY_CAST($source AS TEXT) IS NULL OR source = $source
  )
  AND (
    TRY_CAST($scopes AS TEXT) IS NULL
    OR ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), scope)
  )
  AND CASE
    WHEN NOT TRY_CAST($backup_id AS TEXT) IS NULL
    THEN TRUE
    WHEN TRY_CAST($to_ts AS BIGINT) IS NULL
    THEN newest
    ELSE $to_ts > covers_from AND $to_ts <= covers_to
  END
ORDER BY
  scope NULLS FIRST

-- 66f0fb19f603416f selected translations
SELECT
  f.*
FROM selected AS f
LEFT JOIN (
  SELECT
    t.scope,
    t.epoch,
    t.region,
    MAX(t.to_position) AS position
  FROM translations AS t
  WHERE
    t.source = $source
    AND t.cluster = $cluster
    AND ARRAY_CONTAINS(STR_SPLIT_REGEX($targets, ','), t.scope || '=' || t.target_epoch)
    AND (
      TRY_CAST($restore_id AS TEXT) IS NULL
      OR t.restore_id <> TRY_CAST($restore_id AS TEXT)
    )
  GROUP BY
    t.scope,
    t.epoch,
    t.region
) AS r
  ON f.scope = r.scope AND f.epoch = r.epoch AND f.region = r.region
WHERE
  r.position IS NULL OR f.end_position > r.position
ORDER BY
  f.destination NULLS FIRST,
  f.path NULLS FIRST

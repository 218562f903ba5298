-- 1118f2cd3c41dae0 raw_holds raw_policies raw_policy_topics
SELECT
  MAX(s."at") AS "at"
FROM (
  SELECT
    h."at"
  FROM raw_holds AS h
  WHERE
    h.backup_id = TRY_CAST($backup_id AS TEXT)
  UNION ALL
  SELECT
    p."at"
  FROM raw_policies AS p
  WHERE
    p.source = TRY_CAST($source AS TEXT)
  UNION ALL
  SELECT
    t."at"
  FROM raw_policy_topics AS t
  WHERE
    t.source = TRY_CAST($source AS TEXT)
) AS s

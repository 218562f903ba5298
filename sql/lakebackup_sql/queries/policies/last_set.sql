-- When a hold of the backup :backup_id, or the policy of :source or its topics, was last set or removed: the newest row
-- counts, so the next one has to be later, whatever the clock says. Null: never.
SELECT MAX(s.at) AS at
FROM (
  SELECT h.at FROM raw_holds AS h WHERE h.backup_id = CAST(:backup_id AS STRING)
  UNION ALL
  SELECT p.at FROM raw_policies AS p WHERE p.source = CAST(:source AS STRING)
  UNION ALL
  SELECT t.at FROM raw_policy_topics AS t WHERE t.source = CAST(:source AS STRING)
) AS s

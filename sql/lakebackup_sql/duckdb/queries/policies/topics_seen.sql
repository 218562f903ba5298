-- 71a46a1aa9fb7483 raw_topics_seen
SELECT
  t.scope
FROM raw_topics_seen AS t
JOIN (
  SELECT
    MAX("at") AS "at"
  FROM raw_topics_seen
  WHERE
    source = $source
) AS n
  ON t."at" = n."at"
WHERE
  t.source = $source AND t.scope <> ''
ORDER BY
  t.scope NULLS FIRST

-- 344b1d5aeff99cda raw_backups raw_scopes raw_topics_seen
SELECT
  t.source,
  t.scope,
  t."at",
  TIMESTAMP_MICROS(t."at") AS time
FROM raw_topics_seen AS t
JOIN (
  SELECT
    source,
    MAX("at") AS "at"
  FROM raw_topics_seen
  GROUP BY
    source
) AS n
  ON t.source = n.source AND t."at" = n."at"
ANTI JOIN (
  SELECT
    s.source,
    s.scope
  FROM raw_scopes AS s
  JOIN raw_backups AS b
    ON s.backup_id = b.backup_id
  WHERE
    b.state = 'complete'
) AS h
  ON t.source = h.source AND t.scope = h.scope
WHERE
  t.scope <> ''

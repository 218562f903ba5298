-- How many rows a user's SELECT returned (relation chosen), the least and the greatest path of them, and the least and the
-- greatest topic that these paths name (null: one is no path of a topic's data file, or its topic is encoded there): with
-- these, an engine need not look at the files of all other topics.
SELECT
  COUNT(*) AS rows_chosen,
  MIN(c.path) AS first_path,
  MAX(c.path) AS last_path,
  CASE WHEN MIN(c.topic) <> '' THEN MIN(c.topic) END AS first_scope,
  CASE WHEN MIN(c.topic) <> '' THEN MAX(c.topic) END AS last_scope
FROM (
  SELECT path, REGEXP_EXTRACT(path, '^[^/]+/[0-9a-f]{32}/topics/([^/%]+)/partition=', 1) AS topic
  FROM chosen
) AS c

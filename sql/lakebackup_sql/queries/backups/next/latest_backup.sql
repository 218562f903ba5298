-- The backup that the next one can continue: the newest that can be restored, of level :level or below (null: any). Not
-- one that another replaces: a backup after it would not follow those that came since.
SELECT *
FROM parents
WHERE source = :source
  AND reason IS NULL
  AND (CAST(:level AS INT) IS NULL OR level <= :level)
ORDER BY place DESC, number DESC
LIMIT 1

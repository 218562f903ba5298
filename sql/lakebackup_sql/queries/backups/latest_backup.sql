-- The backup that the next one can continue: the newest that can be restored, of level :level or below (null: any).
-- Not one that another has come in place of: what stands on it would not be in a line with what came since.
SELECT * FROM (
  SELECT b.*, MAX(b.link) OVER (PARTITION BY b.source, b.base) AS last_link FROM backups AS b WHERE b.source = :source
) AS l
WHERE state = 'complete'
  AND intact
  AND unlinked > last_link
  AND (CAST(:level AS INT) IS NULL OR level <= :level)
ORDER BY place DESC, number DESC
LIMIT 1

-- 521c50bafb1721c4 floors raw_backups
SELECT
  (
    SELECT
      MAX(f."at")
    FROM floors AS f
    WHERE
      f.source = $source
  ) AS "at",
  (
    SELECT
      COUNT(*)
    FROM raw_backups AS b
    WHERE
      b.source = $source AND b.state = 'deleted'
  ) AS deleted

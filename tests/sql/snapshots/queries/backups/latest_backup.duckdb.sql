SELECT
  *
FROM (
  SELECT
    b.*,
    MAX(b.link) OVER (PARTITION BY b.source, b.base) AS last_link
  FROM backups AS b
  WHERE
    b.source = $source
) AS l
WHERE
  state = 'complete'
  AND intact
  AND unlinked > last_link
  AND (
    TRY_CAST($level AS INT) IS NULL OR level <= $level
  )
ORDER BY
  place DESC,
  number DESC
LIMIT 1

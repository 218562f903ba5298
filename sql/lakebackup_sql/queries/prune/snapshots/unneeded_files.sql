-- Files that no backup to be kept (relation retained: number) needs: no kept backup was taken between the addition of a
-- file and its departure. For topics and queues that is between link and unlinked of the backup that wrote it. Only
-- files added in [:from_number, :to_number], after which nothing is kept, and files that departed up to :gone_by are
-- considered.
WITH kept AS (
  SELECT
    n.number,
    CASE WHEN n.next < n.until THEN n.next END AS next
  FROM (
    SELECT
      o.number, o.until,
      MIN(CASE WHEN r.number IS NOT NULL THEN o.at END) OVER (
        PARTITION BY o.line ORDER BY o.at DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ) AS next
    FROM (
      SELECT
        number,
        CASE WHEN source_kind IN ('kafka', 'queues') THEN base END AS line,
        CASE WHEN source_kind IN ('kafka', 'queues') THEN link ELSE number END AS at,
        CASE WHEN source_kind IN ('kafka', 'queues') THEN unlinked ELSE 9223372036854775807 END AS until
      FROM backups
      WHERE source = :source
    ) AS o
    LEFT JOIN retained AS r ON o.number = r.number
  ) AS n
)
SELECT f.destination, f.path, f.scope, f.region, f.added_in, f.bytes
FROM files AS f
JOIN kept AS k ON f.added_in = k.number
WHERE f.source = :source
  AND f.added_in BETWEEN :from_number AND :to_number
  AND k.next IS NULL
UNION ALL
SELECT d.destination, d.path, d.scope, d.region, d.added_in, d.bytes
FROM departures AS d
JOIN kept AS k ON d.added_in = k.number
LEFT ANTI JOIN removals AS r ON d.destination = r.destination AND d.path = r.path
WHERE d.source = :source
  AND d.gone_in <= :gone_by
  AND d.gone_in <= k.next

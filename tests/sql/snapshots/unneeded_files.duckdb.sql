WITH kept AS (
  SELECT
    b.number,
    MIN(r.number) OVER (
      PARTITION BY CASE WHEN b.source_kind = 'kafka' THEN b.base END
      ORDER BY b.number DESC
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS next
  FROM backups AS b
  LEFT JOIN retained AS r
    ON b.number = r.number
  WHERE
    b.source = $source
)
SELECT
  f.destination,
  f.path,
  f.scope,
  f.region,
  f.added_in,
  f.bytes
FROM files AS f
JOIN kept AS k
  ON f.added_in = k.number
WHERE
  f.source = $source
  AND f.added_in BETWEEN $from_number AND $to_number
  AND k.next IS NULL
UNION ALL
SELECT
  d.destination,
  d.path,
  d.scope,
  d.region,
  d.added_in,
  d.bytes
FROM departures AS d
JOIN kept AS k
  ON d.added_in = k.number
ANTI JOIN removals AS r
  ON d.destination = r.destination AND d.path = r.path
WHERE
  d.source = $source AND d.gone_in <= $gone_by AND d.gone_in <= k.next

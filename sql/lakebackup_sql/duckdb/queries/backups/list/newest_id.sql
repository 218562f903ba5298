-- a3ab7bc6804cffa2 backups own_kinds pruned_backups
SELECT
  n.backup_id
FROM (
  SELECT
    b.backup_id,
    b.source,
    b.number,
    MIN(b.finished_at) OVER (
      PARTITION BY b.source, CASE WHEN k.source_kind IS NULL THEN b.backup_id END
      ORDER BY b.number DESC
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS ended_at
  FROM backups AS b
  LEFT JOIN own_kinds AS k
    ON b.source_kind = k.source_kind
  ANTI JOIN pruned_backups AS p
    ON b.backup_id = p.backup_id
  WHERE
    b.state = 'complete'
    AND b.intact
    AND (
      TRY_CAST($source AS TEXT) IS NULL OR b.source = $source
    )
) AS n
ORDER BY
  n.ended_at DESC,
  n.source NULLS FIRST,
  n.number DESC
LIMIT 1

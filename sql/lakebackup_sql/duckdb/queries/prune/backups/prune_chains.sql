-- 684409ae02ea4be8 backups leaving
SELECT
  k.backup_id,
  k.number,
  k.needed_by
FROM (
  SELECT
    b.backup_id,
    b.number,
    b.state,
    b.unlinked,
    NOT v.backup_id IS NULL AS leaves,
    MIN(
      CASE
        WHEN v.backup_id IS NULL AND b.state = 'complete' AND b.chained
        THEN b.link
      END
    ) OVER later AS next,
    ARG_MIN(
      CASE
        WHEN v.backup_id IS NULL AND b.state = 'complete' AND b.chained
        THEN b.backup_id
      END,
      CASE
        WHEN v.backup_id IS NULL AND b.state = 'complete' AND b.chained
        THEN b.link
      END
    ) OVER later AS needed_by
  FROM backups AS b
  LEFT JOIN leaving AS v
    ON b.backup_id = v.backup_id
  WHERE
    b.source = $source
  WINDOW later AS (
    PARTITION BY b.base
    ORDER BY b.link DESC
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )
) AS k
WHERE
  k.leaves AND k.state = 'complete' AND k.next < k.unlinked
ORDER BY
  k.number NULLS FIRST
LIMIT 10

-- 930126a5b79178a8 backups future_backups unusable_backups
SELECT
  k.source,
  k.backup_id,
  k.number,
  k.end_ts,
  k.state,
  k.reason,
  k.path,
  k.detail
FROM (
  SELECT
    b.source,
    b.backup_id,
    b.number,
    b.end_ts,
    b.state,
    u.reason,
    u.path,
    u.detail,
    MAX(CASE WHEN u.backup_id IS NULL THEN b.number END) OVER (PARTITION BY b.source) AS whole
  FROM (
    SELECT
      c.*,
      NOT f.backup_id IS NULL AS future,
      MAX(CASE WHEN f.backup_id IS NULL THEN c.end_ts END) OVER (
        PARTITION BY c.source
        ORDER BY c.number NULLS FIRST
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS before_ts
    FROM backups AS c
    LEFT JOIN future_backups AS f
      ON c.backup_id = f.backup_id
    WHERE
      c.source = $source
  ) AS b
  LEFT JOIN (
    SELECT
      w.backup_id,
      MIN(w.reason) AS reason,
      ARG_MIN(w.path, w.reason) AS path,
      ARG_MIN(w.detail, w.reason) AS detail
    FROM unusable_backups AS w
    GROUP BY
      w.backup_id
  ) AS u
    ON b.backup_id = u.backup_id
  WHERE
    b.source = $source
    AND b.source_kind = 'snapshot'
    AND (
      TRY_CAST($backup_id AS TEXT) IS NULL OR b.backup_id = $backup_id
    )
    AND (
      NOT TRY_CAST($backup_id AS TEXT) IS NULL OR b.state = 'complete'
    )
    AND (
      TRY_CAST($to_ts AS BIGINT) IS NULL
      OR (
        b.end_ts <= $to_ts AND NOT b.future AND COALESCE(b.end_ts >= b.before_ts, TRUE)
      )
    )
) AS k
WHERE
  k.number >= COALESCE(k.whole, 0)
ORDER BY
  CASE WHEN k.number = k.whole THEN 0 ELSE 1 END NULLS FIRST,
  k.number DESC
LIMIT 100

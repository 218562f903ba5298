-- 9b3d51a3a90b5d72 backups faults files holds
SELECT
  b.backup_id,
  b.number,
  b.ts_domain,
  b.end_ts,
  b.destination,
  b.note,
  NOT h.backup_id IS NULL AS held,
  MIN(c.path) AS damaged
FROM backups AS b
LEFT JOIN holds AS h
  ON b.backup_id = h.backup_id
LEFT JOIN files AS f
  ON b.backup_id = f.backup_id AND f.format = 'delta'
LEFT JOIN faults AS c
  ON f.destination = c.destination AND f.path = c.path
WHERE
  b.source = $source
  AND b.source_kind = 'changes'
  AND b.kind = 'full'
  AND b.state = 'complete'
  AND (
    TRY_CAST($to_ts AS BIGINT) IS NULL OR b.end_ts <= $to_ts
  )
GROUP BY
  b.backup_id,
  b.number,
  b.ts_domain,
  b.end_ts,
  b.destination,
  b.note,
  h.backup_id
ORDER BY
  b.end_ts DESC,
  b.number DESC

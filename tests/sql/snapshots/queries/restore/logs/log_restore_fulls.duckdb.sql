SELECT
  b.backup_id,
  b.number,
  b.ts_domain,
  b.end_ts,
  b.destination,
  b.note,
  MIN(c.path) AS damaged
FROM backups AS b
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
  b.note
ORDER BY
  b.end_ts DESC,
  b.number DESC
LIMIT 100

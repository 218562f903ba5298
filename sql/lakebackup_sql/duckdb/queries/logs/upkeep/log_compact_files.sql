-- 73429246d14fe1f4 backups departures faults files holds
SELECT
  n.destination,
  n.path,
  n.backup_id,
  n.added_in,
  n.source,
  n.scope,
  n.epoch,
  n.region,
  n.codec,
  n.key_id,
  n.bytes,
  n.raw_bytes,
  n.sha256,
  n.entries,
  n.cf,
  n.op
FROM (
  SELECT
    f.*,
    COUNT(*) OVER (PARTITION BY f.scope, f.cf, f.op) AS alike
  FROM files AS f
  JOIN backups AS b
    ON f.backup_id = b.backup_id
  ANTI JOIN departures AS d
    ON f.destination = d.destination AND f.path = d.path
  ANTI JOIN holds AS h
    ON f.backup_id = h.backup_id
  ANTI JOIN faults AS c
    ON f.destination = c.destination AND f.path = c.path
  WHERE
    f.source = $source
    AND f.format = 'log-arrow-1'
    AND f.role = 'data'
    AND f.raw_bytes < $small
    AND b.state = 'complete'
    AND b.number <= $newest
    AND (
      TRY_CAST($until AS BIGINT) IS NULL OR b.end_ts <= $until
    )
) AS n
WHERE
  n.alike > 1

SELECT
  f.source,
  f.destination,
  f.path,
  f.backup_id,
  f.scope,
  f.epoch,
  f.region,
  f.bytes,
  f.entries,
  f.min_ts,
  f.max_ts,
  f.min_time,
  f.max_time,
  c.check_id,
  c."at" AS found_at,
  c.time AS found_time
FROM faults AS c
JOIN files AS f
  ON c.destination = f.destination AND c.path = f.path
WHERE
  c.outcome = 'missing'

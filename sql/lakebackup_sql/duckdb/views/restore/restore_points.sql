-- 07e7d85ea5ac6f91 chain_points damaged_points
SELECT
  p.source,
  p.scope,
  p.epoch,
  p.destination,
  p.backup_id,
  p.base,
  p.number,
  p.place,
  p.link,
  p.kind,
  p.regions,
  p.replication,
  p.settings,
  p.generation,
  p.covers_from,
  p.covers_to,
  ROW_NUMBER() OVER (
    PARTITION BY p.source, p.scope
    ORDER BY p.newest DESC, p.covers_to DESC, p.number DESC
  ) = 1 AS newest,
  p.ts_domain,
  p.covers_from_time,
  p.covers_to_time
FROM chain_points AS p
ANTI JOIN damaged_points AS d
  ON p.backup_id = d.backup_id AND p.scope = COALESCE(d.scope, p.scope)

-- 01cb43077512fd5e backups own_kinds pruned_backups
SELECT
  n.source,
  n.number,
  n.backup_id,
  n.kind,
  n.state,
  n.intact,
  n.base,
  n.parent,
  n.chain_position,
  n.start_ts,
  n.end_ts,
  n.end_time,
  n.started_time,
  n.finished_time,
  n.files,
  n.bytes,
  n.entries,
  n.isolation,
  n.codec,
  n.tool,
  n.note
FROM (
  SELECT
    b.source,
    b.number,
    b.backup_id,
    b.kind,
    b.state,
    b.intact AND p.backup_id IS NULL AS intact,
    b.base,
    b.parent,
    b.chain_position,
    b.start_ts,
    b.end_ts,
    b.end_time,
    b.started_time,
    b.finished_time,
    b.files,
    b.bytes,
    b.entries,
    b.isolation,
    b.codec,
    b.tool,
    b.note,
    MIN(b.finished_at) OVER (
      PARTITION BY b.source, CASE WHEN k.source_kind IS NULL THEN b.backup_id END
      ORDER BY b.number DESC
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS ended_at
  FROM backups AS b
  LEFT JOIN pruned_backups AS p
    ON b.backup_id = p.backup_id
  LEFT JOIN own_kinds AS k
    ON b.source_kind = k.source_kind
  WHERE
    TRY_CAST($source AS TEXT) IS NULL OR b.source = $source
) AS n
ORDER BY
  n.ended_at DESC,
  n.source NULLS FIRST,
  n.number DESC

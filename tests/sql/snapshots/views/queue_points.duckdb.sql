WITH jumps AS (
  SELECT DISTINCT
    c.source,
    n.number,
    CASE WHEN r.whole OR a.kind = 'full' THEN a.number ELSE a.number - 1 END AS to_number
  FROM raw_queue_points AS c
  JOIN raw_backups AS n
    ON c.backup_id = n.backup_id
  JOIN raw_queue_restores AS r
    ON c.restore_id = r.restore_id
  JOIN raw_backups AS a
    ON r.backup_id = a.backup_id
  WHERE
    n.state <> 'unconfirmed'
), unpassed AS (
  SELECT
    j.source,
    j.number,
    j.to_number
  FROM jumps AS j
  ANTI JOIN jumps AS k
    ON j.source = k.source AND k.to_number < j.number AND j.number < k.number
), likely AS (
  SELECT
    j.source,
    j.number,
    j.to_number
  FROM jumps AS j
  ANTI JOIN unpassed AS k
    ON j.source = k.source AND k.to_number < j.number AND j.number < k.number
), counted AS (
  SELECT
    j.source,
    j.number,
    j.to_number
  FROM jumps AS j
  ANTI JOIN likely AS k
    ON j.source = k.source AND k.to_number < j.number AND j.number < k.number
)
SELECT
  p.source,
  p.backup_id,
  b.number,
  b.kind,
  b.parent,
  b.base,
  p.first_tid,
  p.last_tid,
  p.snapshot_id,
  p.restore_id,
  p.carried,
  p.open_transactions,
  NOT s.backup_id IS NULL AS superseded,
  b.start_ts,
  b.end_ts,
  b.start_time,
  b.end_time
FROM raw_queue_points AS p
JOIN backups AS b
  ON p.backup_id = b.backup_id
LEFT JOIN (
  SELECT DISTINCT
    o.backup_id
  FROM raw_backups AS o
  JOIN counted AS j
    ON o.source = j.source AND j.to_number < o.number AND o.number < j.number
) AS s
  ON p.backup_id = s.backup_id
WHERE
  b.state IN ('complete', 'out_of_sync')

-- fc04bcc8b63e4426 backups raw_files raw_positions
SELECT
  p.backup_id,
  p.started_at,
  p.finished_at,
  TRY_CAST(p.offsets AS BIGINT) AS offsets,
  TRY_CAST((
    SELECT
      SUM(f.raw_bytes)
    FROM raw_files AS f
    WHERE
      f.source = $source AND f.backup_id = p.backup_id
  ) AS BIGINT) AS raw_bytes
FROM (
  SELECT
    b.backup_id,
    b.number,
    b.started_at,
    b.finished_at,
    SUM(o.end_position - o.start_position) AS offsets
  FROM raw_positions AS o
  JOIN backups AS b
    ON b.backup_id = o.backup_id
  WHERE
    b.source = $source
    AND o.source = $source
    AND b.kind = 'log'
    AND b.state = 'complete'
  GROUP BY
    b.backup_id,
    b.number,
    b.started_at,
    b.finished_at
) AS p
ORDER BY
  p.number DESC
LIMIT 1

-- 5b255c5ddd5e2aa0 backups raw_backups raw_queue_points raw_queue_restores
WITH jumps AS (
  SELECT
    c.source,
    MIN(n.number) AS number,
    a.number AS at_number,
    CASE WHEN r.whole OR a.kind = 'full' THEN a.number ELSE a.number - 1 END AS to_number
  FROM raw_queue_points AS c
  JOIN raw_backups AS n
    ON c.backup_id = n.backup_id
  JOIN (
    SELECT DISTINCT
      restore_id,
      backup_id,
      whole
    FROM raw_queue_restores
  ) AS r
    ON c.restore_id = r.restore_id
  JOIN raw_backups AS a
    ON r.backup_id = a.backup_id
  WHERE
    n.state <> 'unconfirmed'
  GROUP BY
    c.source,
    c.restore_id,
    a.number,
    a.kind,
    r.whole
), walks AS (
  SELECT
    j.source,
    LIST_REDUCE(
      ARRAY_REVERSE_SORT(
        ARRAY_AGG([{'number': j.number, 'at_number': j.at_number, 'to_number': j.to_number}]) FILTER(WHERE [{'number': j.number, 'at_number': j.at_number, 'to_number': j.to_number}] IS NOT NULL)
      ),
      LAMBDA w, k : CASE WHEN k[1].number <= w[-1].at_number THEN w || k ELSE w END,
      [{'number': j.most, 'at_number': j.most, 'to_number': j.most}]
    ) AS walk
  FROM (
    SELECT
      *,
      MAX(number) OVER (PARTITION BY source) AS most
    FROM jumps
  ) AS j
  GROUP BY
    j.source,
    j.most
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
  COALESCE(
    ARRAY_LENGTH(LIST_FILTER(w.walk, LAMBDA k : k.to_number < b.number AND b.number < k.number)) > 0,
    FALSE
  ) AS superseded,
  b.start_ts,
  b.end_ts,
  b.start_time,
  b.end_time
FROM raw_queue_points AS p
JOIN backups AS b
  ON p.backup_id = b.backup_id
LEFT JOIN walks AS w
  ON p.source = w.source
WHERE
  b.state IN ('complete', 'out_of_sync')

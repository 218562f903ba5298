-- 099831267e7c5aa8 chain_points raw_backups
SELECT
  c.source,
  c.source_kind,
  c.destination,
  c.backup_id,
  c.kind,
  c.to_ts,
  c.scopes
FROM (
  SELECT
    p.*,
    ROW_NUMBER() OVER (
      PARTITION BY p.source
      ORDER BY CASE WHEN NOT TRY_CAST($to_ms AS BIGINT) IS NULL THEN p.covers_to END DESC, MD5(TRY_CAST($seed AS TEXT) || ' ' || p.backup_id) NULLS FIRST, p.backup_id NULLS FIRST
    ) AS nth
  FROM (
    SELECT
      t.source,
      t.source_kind,
      t.destination,
      t.backup_id,
      MAX(t.kind) AS kind,
      MAX(t.covers_to) AS covers_to,
      MAX(LEAST(t.covers_to, t.until_ts)) AS to_ts,
      ARRAY_TO_STRING(
        LIST_SORT(ARRAY_AGG(t.scope) FILTER(WHERE t.scope IS NOT NULL), 'ASC', 'NULLS FIRST'),
        ','
      ) AS scopes
    FROM (
      SELECT
        r.source,
        b.source_kind,
        r.destination,
        r.backup_id,
        r.kind,
        r.covers_from,
        r.covers_to,
        r.scope,
        CASE
          WHEN TRY_CAST($to_ms AS BIGINT) IS NULL
          THEN r.covers_to
          WHEN r.ts_domain = 'tso'
          THEN TRY_CAST($to_ms AS BIGINT) * 262144 + 262143
          ELSE TRY_CAST($to_ms AS BIGINT)
        END AS until_ts
      FROM chain_points AS r
      JOIN raw_backups AS b
        ON r.backup_id = b.backup_id
      WHERE
        b.source_kind IN ('kafka', 'snapshot', 'changes', 'queues')
        AND (
          TRY_CAST($sources AS TEXT[]) IS NULL
          OR ARRAY_CONTAINS(TRY_CAST($sources AS TEXT[]), r.source)
        )
        AND (
          TRY_CAST($backup_id AS TEXT) IS NULL OR r.backup_id = $backup_id
        )
    ) AS t
    WHERE
      t.covers_from < t.until_ts
    GROUP BY
      t.source,
      t.source_kind,
      t.destination,
      t.backup_id
  ) AS p
) AS c
WHERE
  c.nth = 1
ORDER BY
  c.source NULLS FIRST

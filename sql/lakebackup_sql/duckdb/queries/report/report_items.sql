-- ba94ad13d51cf57e backups files
SELECT
  r.source,
  r.scope,
  r.backups,
  r.chains,
  r.files,
  r.items,
  r.bytes,
  r.all_rows
FROM (
  SELECT
    t.source,
    t.scope,
    t.backups,
    t.chains,
    t.files,
    t.items,
    t.bytes,
    ROW_NUMBER() OVER (PARTITION BY t.source ORDER BY t.bytes DESC, t.scope NULLS FIRST) AS nth,
    COUNT(*) OVER (PARTITION BY t.source) AS all_rows
  FROM (
    SELECT
      f.source,
      f.scope,
      COUNT(*) AS backups,
      COUNT(DISTINCT b.base) AS chains,
      CAST(SUM(f.files) AS BIGINT) AS files,
      CAST(SUM(f.items) AS BIGINT) AS items,
      CAST(SUM(f.bytes) AS BIGINT) AS bytes
    FROM (
      SELECT
        source,
        scope,
        backup_id,
        COUNT(*) AS files,
        SUM(entries) AS items,
        SUM(bytes) AS bytes
      FROM files
      GROUP BY
        source,
        scope,
        backup_id
    ) AS f
    JOIN backups AS b
      ON f.backup_id = b.backup_id
    GROUP BY
      f.source,
      f.scope
  ) AS t
) AS r
WHERE
  r.nth <= $most
ORDER BY
  r.source NULLS FIRST,
  r.nth NULLS FIRST

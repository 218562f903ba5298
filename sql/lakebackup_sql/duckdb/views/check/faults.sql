-- c8bdd3124730e418 checks raw_checks
SELECT
  c.destination,
  c.path,
  c.backup_id,
  c.outcome,
  c.detail,
  c.mode,
  c.check_id,
  c."at",
  c.time
FROM (
  SELECT
    k.destination,
    k.path,
    k.backup_id,
    k.outcome,
    k.detail,
    k.mode,
    k.check_id,
    k."at",
    k.time,
    ROW_NUMBER() OVER (PARTITION BY k.destination, k.path ORDER BY k."at" DESC, k.outcome NULLS FIRST) AS place
  FROM checks AS k
  JOIN (
    SELECT DISTINCT
      destination,
      path
    FROM raw_checks
    WHERE
      outcome IN ('missing', 'changed', 'damaged')
  ) AS s
    ON k.destination = s.destination AND k.path = s.path
) AS c
WHERE
  c.place = 1 AND c.outcome IN ('missing', 'changed', 'damaged')

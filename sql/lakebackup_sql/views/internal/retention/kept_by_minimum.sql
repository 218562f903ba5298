-- One row per full without which there would be fewer fulls than min_redundancy.
SELECT k.backup_id
FROM (
  SELECT
    r.backup_id, r.min_redundancy, ROW_NUMBER() OVER (PARTITION BY r.source ORDER BY r.place DESC, r.number DESC) AS nth
  FROM retained_backups AS r
  WHERE r.is_full
) AS k
WHERE k.nth <= k.min_redundancy

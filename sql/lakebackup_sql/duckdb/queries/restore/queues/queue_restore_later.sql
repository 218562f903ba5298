-- 92ccb3f1bbbe428a selected
SELECT
  MIN(CASE WHEN f.min_ts > TRY_CAST($to_ts AS BIGINT) THEN f.min_tid END) AS tid,
  COUNT(
    CASE
      WHEN f.min_ts <= TRY_CAST($to_ts AS BIGINT) AND TRY_CAST($to_ts AS BIGINT) < f.max_ts
      THEN 1
    END
  ) AS straddling
FROM selected AS f

-- ab8508eb0cc1b8cb raw_floors
SELECT
  source,
  scope,
  epoch,
  region,
  MAX(low_position) AS low_position,
  MAX(generation) AS generation,
  MAX("at") AS "at",
  TIMESTAMP_MICROS(MAX("at")) AS time
FROM raw_floors
GROUP BY
  source,
  scope,
  epoch,
  region

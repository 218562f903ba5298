-- The highest number of a source; those of deleted and unconfirmed backups are not used again, nor those of departures
-- recorded with a backup that was never committed.
SELECT MAX(n.number) AS number
FROM (
  SELECT number FROM backups WHERE source = :source
  UNION ALL
  SELECT gone_in AS number FROM raw_departures WHERE source = :source
) AS n

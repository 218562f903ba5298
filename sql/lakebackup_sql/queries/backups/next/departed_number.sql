-- The highest number above :number, that of its last backup, that a source's departures name; null: none.
SELECT MAX(gone_in) AS number
FROM raw_departures
WHERE source = :source AND gone_in > :number

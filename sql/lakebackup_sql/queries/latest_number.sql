-- The highest number of a source; those of deleted and unconfirmed backups are not used again.
SELECT max(number) AS number FROM backups WHERE source = :source

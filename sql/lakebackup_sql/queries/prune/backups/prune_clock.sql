-- When the newest backup of a source was done, by the clock of the machine that took it.
SELECT MAX(b.finished_at) AS finished_at
FROM raw_backups AS b
WHERE b.source = :source

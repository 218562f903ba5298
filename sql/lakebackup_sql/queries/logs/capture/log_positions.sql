-- Up to which offset a log task has read each partition. An unconfirmed flush does not count: no restore uses what it
-- captured, so the next one has to capture it again.
SELECT p.scope, p.epoch, p.region, MAX(p.end_position) AS end_position
FROM raw_positions AS p
JOIN backups AS b ON p.backup_id = b.backup_id
WHERE p.source = :source AND b.source = :source AND b.kind = 'log' AND b.state <> 'unconfirmed'
GROUP BY p.scope, p.epoch, p.region
ORDER BY p.scope, p.epoch, CAST(p.region AS BIGINT)

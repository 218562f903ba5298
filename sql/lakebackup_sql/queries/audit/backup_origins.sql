-- What the last backups of :source that ended well were taken from, as JSON, the newest first.
SELECT GET_JSON_OBJECT(a.detail, '$.request') AS origin
FROM raw_audit AS a
WHERE a.subject = :source AND a.outcome = 'ok' AND a.action LIKE 'backup %'
ORDER BY a.at DESC
LIMIT 100

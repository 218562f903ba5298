-- Backups of :source after backup number :number that a restore to the newest state passes over, since they, or backups
-- that they need, are not complete; the newest three. Those whose history was cut back are left out.
SELECT b.backup_id, b.end_ts
FROM backups AS b
WHERE b.source = :source
  AND b.number > :number
  AND (b.state = 'unconfirmed' OR (b.state = 'complete' AND NOT b.intact))
ORDER BY b.number DESC
LIMIT 3

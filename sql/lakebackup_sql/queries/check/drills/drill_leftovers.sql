-- Restores of drills that did not finish, which nobody resumes: their folders are gone.
SELECT restore_id, detail
FROM restores
WHERE scope IS NULL AND state IN ('running', 'failed') AND target LIKE '%/lakebackup-drill-%'
ORDER BY restore_id

-- Backups all of whose files were removed, all but the lists of rows beside them (role 'meta'): one row of removals
-- stands for those of a prune (see removals_kept).
-- prune_id: the last of these prunes
SELECT backup_id, MAX(prune_id) AS prune_id
FROM raw_removals
WHERE files IS NOT NULL
GROUP BY backup_id

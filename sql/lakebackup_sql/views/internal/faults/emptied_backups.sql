-- One row per backup whose files were all removed, except the lists of rows beside them (role 'meta'): which prune
-- removed the last of them. One row of `removals` stands for all its files that a prune removed (see the query
-- removals_kept).
-- prune_id: the last of the prunes that removed its files
SELECT backup_id, MAX(prune_id) AS prune_id
FROM raw_removals
WHERE files IS NOT NULL
GROUP BY backup_id

-- One row per backup and backup that it needs, itself included: what a restore of the backup needs. Filter the view by
-- one backup, because there are many pairs.
-- needed_id: a backup that it needs
-- link: link of needed_id in its chain
-- state: state of needed_id
SELECT t.backup_id, b.backup_id AS needed_id, b.link, b.state
FROM backups AS t
JOIN backups AS b ON t.source = b.source AND t.base = b.base AND b.link <= t.link AND t.link < b.unlinked

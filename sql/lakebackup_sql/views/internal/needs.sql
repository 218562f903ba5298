-- Which backups a restore of a backup needs, itself included. Filter it by one backup: there are many pairs.
-- needed_id: a backup that it needs
-- link: the place of needed_id in the chain
-- state: that of needed_id
SELECT t.backup_id, b.backup_id AS needed_id, b.link, b.state
FROM backups AS t
JOIN backups AS b ON t.source = b.source AND t.base = b.base AND b.link <= t.link AND t.link < b.unlinked

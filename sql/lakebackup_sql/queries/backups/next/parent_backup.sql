-- The backup :backup_id, to be continued; the last branch and the last link of its chain; why it cannot be, or null.
SELECT * FROM parents WHERE backup_id = :backup_id

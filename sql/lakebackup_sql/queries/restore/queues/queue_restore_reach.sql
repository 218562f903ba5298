-- The last link of the chain that the files chosen (relation selected: rows as of queue_restore_files) are of; null:
-- there is no file.
SELECT MAX(f.link) AS link FROM selected AS f

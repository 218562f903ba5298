-- One row per backup whose files lakebackup manages: which backups are of its own kinds of sources, not from another
-- program.
SELECT b.*
FROM backups AS b
LEFT SEMI JOIN own_kinds AS k ON b.source_kind = k.source_kind

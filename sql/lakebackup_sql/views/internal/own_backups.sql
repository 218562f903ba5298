-- Backups whose files this program keeps: those of its own kinds of sources, not those that other programs made.
SELECT b.*
FROM backups AS b
LEFT SEMI JOIN own_kinds AS k ON b.source_kind = k.source_kind

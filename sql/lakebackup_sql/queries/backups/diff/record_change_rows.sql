-- The changed keys (relation record_changed: rows of record_changes), in order.
SELECT c.change, c.scope, c.partition, c.key, c.key_hex, c.old_offset, c.new_offset
FROM record_changed AS c
ORDER BY c.scope, c.partition, c.key_hex

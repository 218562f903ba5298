-- 2c588f06bda84cdd record_changed
SELECT
  c.change,
  c.scope,
  c.partition,
  c.key,
  c.key_hex,
  c.old_offset,
  c.new_offset
FROM record_changed AS c
ORDER BY
  c.scope NULLS FIRST,
  c.partition NULLS FIRST,
  c.key_hex NULLS FIRST

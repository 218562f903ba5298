MERGE INTO log_target AS t
USING log_changes AS c
ON t.table_id = c.table_id AND t.key = c.key
WHEN MATCHED AND c.type = 'D' THEN DELETE
WHEN MATCHED THEN UPDATE SET
  t.db = c.db, t.name = c.name, t.value = c.value, t.start_ts = c.start_ts, t.commit_ts = c.commit_ts, t.seq = c.seq,
  t.sub = c.sub
WHEN NOT MATCHED AND c.type = 'P' THEN INSERT
  (table_id, db, name, key, value, start_ts, commit_ts, seq, sub)
  VALUES (c.table_id, c.db, c.name, c.key, c.value, c.start_ts, c.commit_ts, c.seq, c.sub)

-- One row per kind of source whose files lakebackup manages: which kinds are its own. An import named every other kind.
-- source_kind: the kind
SELECT EXPLODE(ARRAY('kafka', 'couchbase', 'snapshot', 'changes', 'queues')) AS source_kind

-- The kinds of sources whose files this program keeps; any other is one that an import named.
-- source_kind: the kind
SELECT EXPLODE(ARRAY('kafka', 'couchbase', 'snapshot', 'changes', 'queues')) AS source_kind

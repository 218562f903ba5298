-- 44f78c132c752ece
SELECT
  UNNEST(['kafka', 'couchbase', 'snapshot', 'changes', 'queues']) AS source_kind

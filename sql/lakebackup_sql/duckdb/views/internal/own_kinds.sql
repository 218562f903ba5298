-- 8bea3475d3bb5999
SELECT
  UNNEST(['kafka', 'couchbase', 'snapshot', 'changes', 'queues']) AS source_kind

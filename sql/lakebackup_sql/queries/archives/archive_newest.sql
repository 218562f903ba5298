-- The newest mutation of each document, unless that deletes it.
SELECT scope, vbucket, key, seqno, place, deleted, cas, flags, expiry, datatype, value
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY scope, vbucket, key ORDER BY seqno DESC, place DESC) AS age
  FROM archive_mutations
) AS m
WHERE age = 1
  AND NOT deleted

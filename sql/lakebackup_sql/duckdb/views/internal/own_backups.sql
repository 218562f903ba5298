-- 0d04ab4c51f1aeed backups own_kinds
SELECT
  b.*
FROM backups AS b
SEMI JOIN own_kinds AS k
  ON b.source_kind = k.source_kind

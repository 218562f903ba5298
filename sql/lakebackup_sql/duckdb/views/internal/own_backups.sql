-- 11f3e22cec625824 backups own_kinds
SELECT
  b.*
FROM backups AS b
SEMI JOIN own_kinds AS k
  ON b.source_kind = k.source_kind

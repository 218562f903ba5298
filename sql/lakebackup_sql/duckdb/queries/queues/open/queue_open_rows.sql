-- 005996def925800c queue_unended
SELECT
  $backup_id AS backup_id,
  $source AS source,
  transaction_id,
  scope,
  epoch,
  region,
  first_position,
  first_tid,
  entries
FROM queue_unended

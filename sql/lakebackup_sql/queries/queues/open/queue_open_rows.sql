-- The transactions that are open when a backup of queues ends (queue_unended), as rows of the catalog.
SELECT
  :backup_id AS backup_id, :source AS source, transaction_id, scope, epoch, region, first_position, first_tid, entries
FROM queue_unended

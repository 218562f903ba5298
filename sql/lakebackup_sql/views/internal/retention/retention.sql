-- One row per backup: the first reason for which it stays by itself. Backups that only others need have none here; see
-- `obsolete_backups`.
-- stays: the reason, as in `obsolete_backups`; null: there is none
WITH inherited AS (
  -- A backup that depends on a backup on hold stays as long as its chain needs that one.
  SELECT
    k.backup_id,
    MAX(CASE WHEN k.held THEN k.unlinked END) OVER (
      PARTITION BY k.source, k.base ORDER BY k.link ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS held_until
  FROM retained_backups AS k
)
SELECT
  k.*,
  CASE
    WHEN k.state = 'deleted' THEN NULL
    WHEN k.held THEN 'held'
    WHEN k.state = 'unconfirmed' THEN 'unconfirmed'
    WHEN k.future AND k.state = 'complete' AND k.merged_into IS NULL AND NOT k.pruned THEN 'future'
    WHEN k.engine_full IS NOT NULL THEN 'needed'
    WHEN k.restored AND k.state = 'complete' THEN 'restored'
    -- Something else replaces it.
    WHEN k.state = 'out_of_sync' OR k.merged_into IS NOT NULL OR k.pruned THEN NULL
    WHEN k.window_days IS NULL AND k.redundancy IS NULL AND k.keep_differentials IS NULL AND NOT k.has_rules
      THEN 'no_limit'
    WHEN k.is_log THEN NULL
    WHEN w.backup_id IS NOT NULL THEN 'window'
    WHEN r.backup_id IS NOT NULL THEN 'redundancy'
    WHEN t.rule IS NOT NULL THEN t.rule
    WHEN m.backup_id IS NOT NULL THEN 'minimum'
    WHEN k.link < i.held_until THEN 'inherited'
  END AS stays
FROM retained_backups AS k
LEFT JOIN kept_by_window AS w ON k.backup_id = w.backup_id
LEFT JOIN kept_by_redundancy AS r ON k.backup_id = r.backup_id
LEFT JOIN kept_by_period AS t ON k.backup_id = t.backup_id
LEFT JOIN kept_by_minimum AS m ON k.backup_id = m.backup_id
LEFT JOIN inherited AS i ON k.backup_id = i.backup_id

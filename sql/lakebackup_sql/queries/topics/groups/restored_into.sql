-- Topics of the cluster :cluster into which records of :source were restored, by name and id there.
SELECT DISTINCT t.scope, t.target_scope, t.target_epoch
FROM translations AS t
WHERE t.source = :source
  AND t.cluster = :cluster
ORDER BY t.scope, t.target_scope, t.target_epoch

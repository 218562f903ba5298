-- The policy of a source.
SELECT * FROM policies AS p WHERE p.source = :source

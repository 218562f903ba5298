-- Keys of the relation newest_b (rows of record_newest), at most :most.
SELECT DISTINCT b.key_hex
FROM newest_b AS b
LIMIT :most

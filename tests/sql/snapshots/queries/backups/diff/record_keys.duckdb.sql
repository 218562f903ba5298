SELECT DISTINCT
  b.key_hex
FROM newest_b AS b
LIMIT $most

-- 55b3eeb0ec6d0f7b newest_b
SELECT DISTINCT
  b.key_hex
FROM newest_b AS b
LIMIT $most

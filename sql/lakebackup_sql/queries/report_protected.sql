-- Until when each topic is protected.
SELECT * FROM rpo

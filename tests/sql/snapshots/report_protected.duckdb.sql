SELECT
  *
FROM rpo

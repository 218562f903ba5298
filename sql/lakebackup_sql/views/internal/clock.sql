-- The present: in a catalog that is read as it was, the moment that it is read as of.
-- now_ms: ms since 1970 UTC
SELECT unix_millis(current_timestamp()) AS now_ms

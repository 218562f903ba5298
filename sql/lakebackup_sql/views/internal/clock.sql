-- One row: what time it is now. In a catalog that is read as of an earlier moment, that moment is now.
-- now_ms: ms since 1970 UTC
SELECT unix_millis(current_timestamp()) AS now_ms

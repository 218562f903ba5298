"""The job of a log task: flushes of a change feed, one after another."""

"""Change feeds: the format of events, of log files and of their lists, and filters of tables."""

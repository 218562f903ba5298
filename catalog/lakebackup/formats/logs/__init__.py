"""Change feeds: what their events are, how log files hold them, which files a restore needs."""

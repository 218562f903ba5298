"""Pure rules: names and paths, times, patterns, retention, schedules."""

"""What the tasks of all kinds of runs share: parts, rows, splits of the work, totals, progress and errors."""

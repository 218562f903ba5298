"""What the tasks of a run share: parts, rows, splits of the work, totals, progress and errors."""

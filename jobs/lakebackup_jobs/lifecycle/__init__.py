"""What every run shares: progress, errors and totals of tasks, splits of the work, locks, deletion."""

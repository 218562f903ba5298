"""What all kinds of runs share: their lifecycle, workspace, progress, tasks, locks and deletion."""

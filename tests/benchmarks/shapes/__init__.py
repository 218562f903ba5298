"""Shapes of real clusters and folders: what each costs, and what it costs when it is twice as large."""

"""The report: what a catalog protects and what a person has to fix, as values and as an HTML page."""

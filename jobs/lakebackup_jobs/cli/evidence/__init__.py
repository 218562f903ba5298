"""The evidence of drills and checks: writing it when a run ends, and the verb `evidence check`."""

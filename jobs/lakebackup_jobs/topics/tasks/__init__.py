"""What Spark tasks do with topics: copy, merge, compact and decode data files."""

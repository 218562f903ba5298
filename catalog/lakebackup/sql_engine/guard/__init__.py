"""A person's SELECT: what it may say, checked before an engine sees it."""

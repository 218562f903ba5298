"""Results of commands as a person reads them: a sentence or two, and a small table for several items.

`--json` has every field of a result, and `--wide` shows every field below the sentences.
"""

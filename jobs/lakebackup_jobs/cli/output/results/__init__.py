"""Prints results of commands as text: a sentence or two, and a small table for several items.

`--json` has every field of a result, and `--wide` prints every field below the sentences.
"""

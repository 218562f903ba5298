"""Suggest known names that are similar to a name that does not exist. Without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

#: The least similarity of two names, 0 to 1. With difflib's default of 0.6, `frobnicate` suggests `locate`.
_MIN_RATIO = 0.65
#: The least similarity of names of this length, such as ids, which have much in common with all others.
_LONG_NAME, _LONG_MIN_RATIO = 16, 0.85
#: A limit on comparisons, since each takes about 20 us and a catalog may hold a million names.
_MAX_COMPARED = 5_000
_MAX_SUGGESTED = 3


def similar_names(name: str, known_names: Iterable[str]) -> list[str]:
    """Up to three of `known_names`: first names that begin with `name`, then names with a similar spelling.

    Case does not matter. Only the first 5,000 names are compared.
    """
    lower = name.lower()
    spellings = {word.lower(): word for word, _ in zip(known_names, range(_MAX_COMPARED), strict=False)}
    continuations = [word for word in sorted(spellings) if len(lower) > 1 and word.startswith(lower)]
    min_ratio = _MIN_RATIO if len(name) < _LONG_NAME else _LONG_MIN_RATIO
    close_matches = get_close_matches(lower, spellings, _MAX_SUGGESTED, min_ratio)
    return [spellings[word] for word in dict.fromkeys([*continuations, *close_matches])][:_MAX_SUGGESTED]


def did_you_mean(name: str, known_names: Iterable[str], otherwise: str = "") -> str:
    """A hint with the known names that are similar to a wrong one; `otherwise` if none is similar."""
    return suggestion(similar_names(name, known_names)) or otherwise


def suggestion(names: Sequence[str]) -> str:
    """`Did you mean a, b or c?`; empty without names."""
    if not names:
        return ""
    *first_names, last_name = names
    return (
        f"Did you mean {', '.join(first_names)} or {last_name}?"
        if first_names
        else f"Did you mean {last_name}?"
    )

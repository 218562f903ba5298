"""Suggestions for a name that does not exist: the known names most like it. Pure."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: How alike two names must be, from 0 to 1. difflib's own 0.6 suggests `locate` for `frobnicate`.
_ALIKE = 0.65
#: The same of long names, such as ids, which are alike by what all have in common.
_LONG, _LONG_ALIKE = 16, 0.85
#: Each comparison takes some 20 us, and a catalog may hold a million names.
_MOST_COMPARED = 5_000
_MOST_SUGGESTED = 3


def similar_names(name: str, known: Iterable[str]) -> list[str]:
    """Up to three of `known`, the likeliest first: names that continue `name`, then names spelled like it.

    Case does not matter. Of very many names only the first 5,000 are compared.
    """
    lower = name.lower()
    spellings = {each.lower(): each for each, _ in zip(known, range(_MOST_COMPARED), strict=False)}
    longer = [each for each in sorted(spellings) if len(lower) > 1 and each.startswith(lower)]
    least = _ALIKE if len(name) < _LONG else _LONG_ALIKE
    alike = get_close_matches(lower, spellings, _MOST_SUGGESTED, least)
    return [spellings[each] for each in dict.fromkeys([*longer, *alike])][:_MOST_SUGGESTED]


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint with the known names most like a wrong one; `otherwise` where none is like it."""
    return suggestion(similar_names(name, known)) or otherwise


def suggestion(names: Sequence[str]) -> str:
    """`Did you mean a, b or c?`; empty without names."""
    if not names:
        return ""
    *first, last = names
    return f"Did you mean {', '.join(first)} or {last}?" if first else f"Did you mean {last}?"

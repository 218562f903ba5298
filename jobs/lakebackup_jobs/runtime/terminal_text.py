"""Escapes names, keys and values of unknown origin, so that a terminal or a page shows but never obeys them.

A topic, a key or a note may contain escape sequences, which move a terminal's cursor or set its title, and
marks that reverse the direction of the text. They are shown as `\\x1b` and `\\u202e`. JSON is not changed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

# Unicode categories: controls, formats (such as direction marks), lone surrogates, separators of lines and of
# paragraphs.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def visible(text: str, *, keep: str = "") -> str:
    """Return the text with each invisible character escaped, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter in keep or unicodedata.category(letter) not in _HIDDEN else _escaped(letter)
        for letter in text
    )


def visible_lines(text: str) -> str:
    """Like `visible`, for a text of several lines, such as an error's message."""
    return visible(text, keep="\n\t")


def all_visible(value: Any) -> Any:
    """Return a value, such as rows, with every text in it made visible."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {all_visible(key): all_visible(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [all_visible(item) for item in value]
    return value


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")

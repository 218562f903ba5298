"""Names, keys and values that others wrote, as text that a terminal or a page shows and does not obey.

A topic, a key or a note may hold escape sequences, which move a terminal's cursor or set its title, and marks
that turn the direction of the text around. They are shown as `\\x1b` and `\\u202e`. JSON stays exact.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

# Controls, formats (direction marks among them), lone surrogates, separators of lines and paragraphs.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def visible(text: str, *, keep: str = "") -> str:
    """The text with each invisible character escaped, but for those in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter in keep or unicodedata.category(letter) not in _HIDDEN else _escaped(letter)
        for letter in text
    )


def visible_lines(text: str) -> str:
    """As `visible`, of a text of several lines, such as an error's message."""
    return visible(text, keep="\n\t")


def all_visible(value: Any) -> Any:
    """The same rows, with every text in them visible."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {all_visible(key): all_visible(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [all_visible(item) for item in value]
    return value


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")

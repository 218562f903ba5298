"""Translates Java's regular expressions and time formats to DuckDB's, which are those of RE2 and strptime.

What the two engines read differently, or might read differently, raises UnsupportedError: only Spark answers
it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot.errors import UnsupportedError

_SPACES = r"\t\n\x0B\f\r "
_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_QUANTIFIER = re.compile(r"[*+?]|\{\d{1,3}(?:,\d{0,3})?\}")
_RANGE = re.compile(r"([a-z])-([a-z])|([A-Z])-([A-Z])")
_REPLACEMENT = re.compile(r"(?:[^$\\]|\$\d(?!\d))*")

# Letters of a time format, the pattern of the texts that they read, and the format for strptime.
_PARTS_TEXT = r"""
    yyyy=\d{4}=%Y MM=\d{2}=%m M=\d{1,2}=%m dd=\d{2}=%d d=\d{1,2}=%d HH=\d{2}=%H H=\d{1,2}=%H mm=\d{2}=%M
    m=\d{1,2}=%M ss=\d{2}=%S s=\d{1,2}=%S SSS=\d{3}=%g SSSSSS=\d{6}=%f
"""
_PARTS = {part.split("=")[0]: part.split("=")[1:] for part in _PARTS_TEXT.split()}
_FORMAT = re.compile(r"'(?P<quoted>[^']+)'|(?P<letters>([A-Za-z])\3*)|(?P<sign>[-/.:, ])")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern for RE2, and its number of groups. `matches_empty` tells whether it matches an empty text,
    `has_end` whether it has a `$`, which in Java also matches before a line end that ends the text."""

    text: str
    groups: int
    matches_empty: bool
    has_end: bool


def re2(java: str) -> Pattern:  # noqa: C901 - one walk
    """Translate a regular expression. Raises UnsupportedError for what RE2 lacks or reads differently.

    One walk over the pattern translates sign by sign. A leading `(?i)` is replaced by classes with both
    cases.
    """
    folded = java.startswith("(?i)")
    pattern = java[4:] if folded else java
    parts: list[str] = []
    position = groups = 0
    # Whether a quantifier here would have nothing to repeat: at the beginning, and after `(`, `|`, `^`, `$`
    # or another quantifier. Only a `?` may follow a quantifier.
    quantified = True
    has_end = False
    while position < len(pattern):
        sign = pattern[position]
        if quantifier := _QUANTIFIER.match(pattern, position):
            if quantified and not (quantifier[0] == "?" and parts and parts[-1] != "?"):
                raise UnsupportedError
            parts.append(quantifier[0])
            position, quantified = quantifier.end(), True
            continue
        quantified = False
        if sign == "\\":
            parts.append(_escaped(pattern[position + 1 : position + 2]))
            position += 2
            continue
        if sign == "[":
            text, position = _class(pattern, position + 1, folded=folded)
            parts.append(text)
            continue
        position += 1
        if sign == "(":
            if pattern.startswith("?", position):
                if not pattern.startswith("?:", position):
                    raise UnsupportedError
                sign, position = "(?:", position + 2
            else:
                groups += 1
        if sign in "(^|" or sign == "(?:":
            quantified = True
        elif sign == ".":
            sign = f"[^{_LINE_ENDS}]"
        elif sign == "$":
            sign, has_end, quantified = r"\z", True, True
        elif sign in "{}]":
            raise UnsupportedError
        elif folded and sign.isascii() and sign.isalpha():
            sign = f"[{sign.lower()}{sign.upper()}]"
        parts.append(sign)
    try:
        matches_empty = re.search(pattern, "") is not None
    except re.error:
        raise UnsupportedError from None
    return Pattern("".join(parts), groups, matches_empty, has_end)


def _escaped(sign: str) -> str:
    """Translate a sign after a backslash."""
    if sign in ("d", "D", "w", "W", "t", "n", "r", "f"):
        return f"\\{sign}"
    if sign in ("s", "S"):
        return f"[{'^' if sign == 'S' else ''}{_SPACES}]"
    if not sign or sign.isalnum() or not sign.isascii():
        raise UnsupportedError
    return f"\\{sign}"


def _class(pattern: str, position: int, *, folded: bool) -> tuple[str, int]:
    """Translate the class of characters whose content begins at `position`. Return it, and the position after
    it."""
    start = position
    text = "["
    if pattern.startswith("^", position):
        text, position = "[^", position + 1
    first = position
    while (sign := pattern[position : position + 1]) != "]" or position == first:
        if not sign or sign in "[]" or pattern.startswith("&&", position):
            raise UnsupportedError
        if sign == "\\":
            escaped = pattern[position + 1 : position + 2]
            if escaped == "S":
                raise UnsupportedError
            text += _SPACES if escaped == "s" else _escaped(escaped)
            position += 2
            continue
        if folded and (letters := _RANGE.match(pattern, position)):
            text += letters[0] + letters[0].swapcase()
            position = letters.end()
            continue
        text += sign + sign.swapcase() if folded and sign.isascii() and sign.isalpha() else sign
        position += 1
    if position == start:
        raise UnsupportedError
    return f"{text}]", position + 1


def replacement(java: str, groups: int) -> str:
    """Translate the text that replaces matches of a pattern with `groups` groups. Raises UnsupportedError as
    `re2` does."""
    if not _REPLACEMENT.fullmatch(java) or any(
        int(number) > groups for number in re.findall(r"\$(\d)", java)
    ):
        raise UnsupportedError
    return java.replace("$", "\\")


def time_format(java: str) -> tuple[str, str]:
    """Translate a time format. Return a pattern of the texts that it can read, and the format for strptime.

    Raises UnsupportedError for a format without a year, and for letters that DuckDB lacks.
    """
    pattern = format_text = ""
    end = 0
    for match in _FORMAT.finditer(java):
        if match.start() != end:
            raise UnsupportedError
        end = match.end()
        if letters := match["letters"]:
            if letters not in _PARTS:
                raise UnsupportedError
            digits, part = _PARTS[letters]
            pattern, format_text = pattern + digits, format_text + part
        else:
            text = match["quoted"] or match["sign"]
            if "%" in text:
                raise UnsupportedError
            pattern, format_text = pattern + re.escape(text), format_text + text
    if end != len(java) or "%Y" not in format_text:
        raise UnsupportedError
    return pattern, format_text

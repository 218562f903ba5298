"""Java's regular expressions and formats of times, as DuckDB has them: RE2's syntax and strptime's.

What the two read otherwise, or may read otherwise, is left to Spark.
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

_PARTS_TEXT = r"""
    yyyy=\d{4}=%Y MM=\d{2}=%m M=\d{1,2}=%m dd=\d{2}=%d d=\d{1,2}=%d HH=\d{2}=%H H=\d{1,2}=%H mm=\d{2}=%M
    m=\d{1,2}=%M ss=\d{2}=%S s=\d{1,2}=%S SSS=\d{3}=%g SSSSSS=\d{6}=%f
"""
_PARTS = {part.split("=")[0]: part.split("=")[1:] for part in _PARTS_TEXT.split()}
_FORMAT = re.compile(r"'(?P<quoted>[^']+)'|(?P<letters>([A-Za-z])\3*)|(?P<sign>[-/.:, ])")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern for RE2. `groups`: how many it has. `empty`: it may match an empty text. `at_end`: it speaks
    of the end of the text, which on Java is before a last line feed too."""

    text: str
    groups: int
    empty: bool
    at_end: bool


def re2(java: str) -> Pattern:  # noqa: C901 - one walk
    """Raises UnsupportedError for what RE2 has not, or reads otherwise."""
    folded = java.startswith("(?i)")
    rest = java[4:] if folded else java
    made: list[str] = []
    at = groups = 0
    quantified = True  # nothing stands before the first sign that could be repeated
    at_end = False
    while at < len(rest):
        sign = rest[at]
        if found := _QUANTIFIER.match(rest, at):
            if quantified and not (found[0] == "?" and made and made[-1] != "?"):
                raise UnsupportedError
            made.append(found[0])
            at, quantified = found.end(), True
            continue
        quantified = False
        if sign == "\\":
            made.append(_escaped(rest[at + 1 : at + 2]))
            at += 2
            continue
        if sign == "[":
            text, at = _class(rest, at + 1, folded=folded)
            made.append(text)
            continue
        at += 1
        if sign == "(":
            if rest.startswith("?", at):
                if not rest.startswith("?:", at):
                    raise UnsupportedError
                sign, at = "(?:", at + 2
            else:
                groups += 1
        if sign in "(^|" or sign == "(?:":
            quantified = True
        elif sign == ".":
            sign = f"[^{_LINE_ENDS}]"
        elif sign == "$":
            sign, at_end, quantified = r"\z", True, True
        elif sign in "{}]":
            raise UnsupportedError
        elif folded and sign.isascii() and sign.isalpha():
            sign = f"[{sign.lower()}{sign.upper()}]"
        made.append(sign)
    try:
        empty = re.search(rest, "") is not None
    except re.error:
        raise UnsupportedError from None
    return Pattern("".join(made), groups, empty, at_end)


def _escaped(sign: str) -> str:
    if sign in ("d", "D", "w", "W", "t", "n", "r", "f"):
        return f"\\{sign}"
    if sign in ("s", "S"):
        return f"[{'^' if sign == 'S' else ''}{_SPACES}]"
    if not sign or sign.isalnum() or not sign.isascii():
        raise UnsupportedError
    return f"\\{sign}"


def _class(pattern: str, at: int, *, folded: bool) -> tuple[str, int]:
    """A class of characters, and the place behind it."""
    start = at
    made = "["
    if pattern.startswith("^", at):
        made, at = "[^", at + 1
    first = at
    while (sign := pattern[at : at + 1]) != "]" or at == first:
        if not sign or sign in "[]" or pattern.startswith("&&", at):
            raise UnsupportedError
        if sign == "\\":
            escaped = pattern[at + 1 : at + 2]
            if escaped == "S":
                raise UnsupportedError
            made += _SPACES if escaped == "s" else _escaped(escaped)
            at += 2
            continue
        if folded and (found := _RANGE.match(pattern, at)):
            made += found[0] + found[0].swapcase()
            at = found.end()
            continue
        made += sign + sign.swapcase() if folded and sign.isascii() and sign.isalpha() else sign
        at += 1
    if at == start:
        raise UnsupportedError
    return f"{made}]", at + 1


def replacement(java: str, groups: int) -> str:
    """What takes a match's place, for RE2. Raises UnsupportedError as `re2`."""
    if not _REPLACEMENT.fullmatch(java) or any(
        int(number) > groups for number in re.findall(r"\$(\d)", java)
    ):
        raise UnsupportedError
    return java.replace("$", "\\")


def time_format(java: str) -> tuple[str, str]:
    """A pattern of the texts that a format of a time reads, and that format for strptime.

    Raises UnsupportedError for one without a year, and for letters that DuckDB has not.
    """
    read = written = ""
    end = 0
    for found in _FORMAT.finditer(java):
        if found.start() != end:
            raise UnsupportedError
        end = found.end()
        if letters := found["letters"]:
            if letters not in _PARTS:
                raise UnsupportedError
            digits, part = _PARTS[letters]
            read, written = read + digits, written + part
        else:
            text = found["quoted"] or found["sign"]
            if "%" in text:
                raise UnsupportedError
            read, written = read + re.escape(text), written + text
    if end != len(java) or "%Y" not in written:
        raise UnsupportedError
    return read, written

"""Checks the characters of a person's SQL before it is parsed."""

from __future__ import annotations

import re
import unicodedata

from lakebackup.errors import UsageProblem
from lakebackup.sql_engine.guard.place import wrong

#: A name that needs no quotes.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_MAX_CHARACTERS = 64 * 1024
_ESCAPE = re.compile(r"\\(?:\\|(?!['\"nrt\\]))")
_RAW = re.compile(r"""\b[rR]('[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*")""")


def check_characters(sql: str) -> None:
    """Raise UsageProblem for SQL that is too long, or has invisible characters, or backslashes that the
    engines read differently."""
    if len(sql) > _MAX_CHARACTERS:
        raise UsageProblem(f"The SQL has {len(sql)} characters; at most {_MAX_CHARACTERS} are read.")
    # Without pairs of backslashes, so that what follows a pair is not read as an escape, and without raw
    # strings, in which a backslash escapes nothing.
    plain = _RAW.sub("", sql).replace("\\\\", "")
    if escape := _ESCAPE.search(plain):
        start = sql.find(escape[0] + plain[escape.end() : escape.end() + 1])
        raise wrong(
            sql,
            (start, start + 1),
            "The SQL holds a backslash that engines do not read alike.",
            r"In a pattern, write [0-9] for a digit, or a raw text: r'\d+'.",
        )
    for position, character in enumerate(sql):
        if unicodedata.category(character) in ("Cc", "Cf", "Cs") and character not in "\t\r\n":
            raise wrong(
                sql, (position, position), f"The SQL holds the invisible character U+{ord(character):04X}."
            )

"""Which characters a person's SQL may hold, before it is parsed."""

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
    """Raises UsageProblem for a text that is too long, or that holds what is not seen or not read alike."""
    if len(sql) > _MAX_CHARACTERS:
        raise UsageProblem(f"The SQL has {len(sql)} characters; at most {_MAX_CHARACTERS} are read.")
    # Of pairs, so that what stands behind one is not taken for an escape; raw text has none.
    plain = _RAW.sub("", sql).replace("\\\\", "")
    if found := _ESCAPE.search(plain):
        at = sql.find(found[0] + plain[found.end() : found.end() + 1])
        raise wrong(
            sql,
            (at, at + 1),
            "The SQL holds a backslash that engines do not read alike.",
            r"In a pattern, write [0-9] for a digit, or a raw text: r'\d+'.",
        )
    for at, character in enumerate(sql):
        if unicodedata.category(character) in ("Cc", "Cf", "Cs") and character not in "\t\r\n":
            raise wrong(sql, (at, at), f"The SQL holds the invisible character U+{ord(character):04X}.")

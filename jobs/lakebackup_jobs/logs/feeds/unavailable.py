"""Finds the placeholders that Debezium writes for values that the database left out of a change.

PostgreSQL leaves out large values that a change did not touch, and Oracle large objects. The event then has
the connector's `unavailable.value.placeholder` in the form of the column's type: as text, as bytes in base64
or hexadecimal digits, as the only element of an array of texts, as an array of its bytes where the elements
are numbers, or as the key and the value of a map.

An expression over the JSON text first selects the rows that may have a placeholder. Only these are parsed.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import UsageProblem

#: The default of `unavailable.value.placeholder` in connectors.
DEFAULT = "__debezium_unavailable_value"
# The prefix of a placeholder that is given as bytes.
_HEX = "hex:"


@dataclass(frozen=True)
class Placeholder:
    """A connector's `unavailable.value.placeholder`. Raises UsageProblem for an invalid text."""

    text: str = DEFAULT

    def __post_init__(self) -> None:
        try:
            valid = bool(self._bytes)
        except ValueError:
            valid = False
        if not valid:
            raise UsageProblem(
                f"--unavailable-value {self.text!r} is no placeholder.",
                hint="Give the connector's unavailable.value.placeholder: a text, or hex: and its bytes.",
            )

    @cached_property
    def _bytes(self) -> bytes:
        if self.text.startswith(_HEX):
            return bytes.fromhex(self.text.removeprefix(_HEX))
        return self.text.encode()

    @cached_property
    def _texts(self) -> frozenset[str]:
        """Its forms as a text: itself, and its bytes as of binary.handling.mode, with and without padding."""
        forms = [
            base64.b64encode(self._bytes),
            base64.urlsafe_b64encode(self._bytes),
            self._bytes.hex().encode(),
        ]
        texts = {self.text, self._bytes.decode(errors="replace"), *(form.decode() for form in forms)}
        texts |= {text.rstrip("=") for text in texts} | {
            text.upper() for text in texts if text == self._bytes.hex()
        }
        return frozenset(texts)

    @cached_property
    def _suspect(self) -> str:
        """An expression that matches the JSON text of every row with a placeholder, and few others."""
        texts = {re.escape(form) for text in self._texts for form in _json_forms(text)}
        first = [_number(byte) for byte in self._bytes[:4]]
        return "|".join([*sorted(texts), r"\s*,\s*".join(first)])

    def is_in(self, rows: pa.ChunkedArray) -> list[int]:
        """The positions of the rows (JSON texts) in which a value was left out."""
        suspects = pc.fill_null(pc.match_substring_regex(rows, self._suspect), fill_value=False)
        positions = np.flatnonzero(suspects.to_numpy()).tolist()
        return [index for index in positions if self._is_in(rows[index].as_py())]

    def _is_in(self, text: str) -> bool:
        # Only the connector writes these texts, so they are no deeper than the columns of a table.
        try:
            parts: list[Any] = [json.loads(text)]
        except ValueError:  # The row is not JSON, but has the text of a placeholder.
            return True
        while parts:
            part = parts.pop()
            if isinstance(part, dict):
                parts += [*part, *part.values()]
            elif isinstance(part, list):
                if self._is_bytes(part):
                    return True
                parts += part
            elif isinstance(part, str) and part in self._texts:
                return True
        return False

    def _is_bytes(self, values: list[Any]) -> bool:
        """Whether numbers, or texts of numbers, are the placeholder's bytes."""
        if len(values) != len(self._bytes):
            return False
        try:
            return bytes(int(float(value)) & 0xFF for value in values) == self._bytes
        except (TypeError, ValueError, OverflowError):
            return False


def _json_forms(text: str) -> set[str]:
    return {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}


def _number(byte: int) -> str:
    """An expression that matches a byte as a number, signed or not."""
    numbers = [str(byte)] if byte < 128 else [str(byte), str(byte - 256)]
    return rf'"?(?:{"|".join(numbers)})(?:\.0+)?"?'

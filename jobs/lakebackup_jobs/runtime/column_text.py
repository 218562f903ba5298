"""Converts columns to text with Arrow's compiled code: a Python object per value takes many times as long.

A Python function converts the values that Arrow would write in another way than Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

NOT_PRINTABLE_ASCII = "[^ -~]"
_PIECE_BYTES = 1 << 20
# The least and the greatest instant that Python's dates can represent, in microseconds since 1970.
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
_UTC = (None, "UTC", "Etc/UTC", "+00:00")


@dataclass(frozen=True, slots=True)
class Form:
    """How to convert columns to text.

    `cell` converts one value. The other functions convert columns, to what `cell` would return. `text`
    converts texts in which the regular expression `hard` finds nothing, and instants in ISO 8601. `number`,
    if there is one, converts numbers and truth values as Arrow writes them.
    """

    cell: Callable[[Any], str]
    hard: str
    text: Callable[[pa.Array], pa.Array]
    number: Callable[[pa.Array], pa.Array] | None = None


def pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches so small that their text fits into memory."""
    for batch in batches:
        rows = max(1, batch.num_rows * _PIECE_BYTES // max(batch.nbytes, _PIECE_BYTES))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def texts(values: pa.Array, form: Form) -> pa.Array:
    """Return the text of each value of a column."""
    kind, types, hard_mask = values.type, pa.types, None
    if types.is_string(kind):
        cells, hard_mask = form.text(values), pc.match_substring_regex(values, form.hard)
    elif form.number and (types.is_integer(kind) or types.is_boolean(kind) or _is_whole_number(kind)):
        cells = form.number(values.cast(pa.string()))
    elif form.number and types.is_float64(kind):
        digits = values.cast(pa.string())
        hard_mask = pc.match_substring_regex(digits, r"[^-0-9.]|^-?0\.0000")  # Python writes an exponent
        cells = form.number(pc.if_else(pc.match_substring(digits, "."), digits, joined(digits, ".0")))
    elif form.number and _are_instants(values):
        cells = form.text(_iso_8601(values))
    else:
        return pa.array(map(form.cell, values.to_pylist()), pa.string())
    if hard_mask is not None and pc.any(hard_mask).as_py():
        hard_cells = pa.array(map(form.cell, values.filter(hard_mask).to_pylist()), pa.string())
        cells = pc.replace_with_mask(cells, pc.fill_null(hard_mask, False), hard_cells)
    return pc.fill_null(cells, form.cell(None))


def joined(*columns: pa.Array | str, between: str = "") -> pa.Array:
    """Join the columns' texts in each row, with `between` between them."""
    return pc.binary_join_element_wise(*columns, between)


def joined_rows(lines: pa.Array) -> str:
    """Join all texts of a column into one."""
    text: str = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "")[0].as_py()
    return text


def _is_whole_number(kind: pa.DataType) -> bool:
    """Return whether these are whole numbers of any size, such as sums: decimals with scale 0."""
    return bool(pa.types.is_decimal(kind) and kind.scale == 0)


def _are_instants(values: pa.Array) -> bool:
    """Return whether these are instants in microseconds and UTC, all within the range of Python's dates."""
    kind = values.type
    if not pa.types.is_timestamp(kind) or kind.unit != "us" or kind.tz not in _UTC:
        return False
    ends = pc.min_max(values.cast(pa.int64())).as_py()
    return ends["min"] is None or (ends["min"] >= _FIRST_US and ends["max"] <= _LAST_US)


def _iso_8601(instants: pa.Array) -> pa.Array:
    iso_texts = pc.replace_substring(instants.cast(pa.timestamp("us")).cast(pa.string()), " ", "T")
    return joined(pc.replace_substring(iso_texts, ".000000", ""), "Z")

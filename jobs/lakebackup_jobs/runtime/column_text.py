"""The columns of rows as text, made by Arrow's compiled code: a Python object per value takes many times as
long. What Arrow would write in another way than Python is left to a function of Python's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

NOT_PRINTABLE_ASCII = "[^ -~]"
_PIECE_BYTES = 1 << 20
# What Python has dates for.
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
_UTC = (None, "UTC", "Etc/UTC", "+00:00")


@dataclass(frozen=True, slots=True)
class Form:
    """How a column becomes text: `cell` is the text of one value. Arrow makes the same with `text` of texts
    that the regular expression `hard` does not find, and of instants in ISO 8601; with `number` of whole
    numbers and truth values, where it is given."""

    cell: Callable[[Any], str]
    hard: str
    text: Callable[[pa.Array], pa.Array]
    number: Callable[[pa.Array], pa.Array] | None = None


def pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in batches small enough that their text fits into memory."""
    for batch in batches:
        rows = max(1, batch.num_rows * _PIECE_BYTES // max(batch.nbytes, _PIECE_BYTES))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def texts(values: pa.Array, form: Form) -> pa.Array:
    """The text of each value of a column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, types, hard = values.type, pa.types, None
    if types.is_string(kind):
        made, hard = form.text(values), pc.match_substring_regex(values, form.hard)
    elif form.number and (types.is_integer(kind) or types.is_boolean(kind) or _is_whole(kind)):
        made = form.number(values.cast(pa.string()))
    elif form.number and types.is_float64(kind):
        shown = values.cast(pa.string())
        hard = pc.match_substring_regex(shown, r"[^-0-9.]|^-?0\.0000")  # Python has an exponent
        made = form.number(pc.if_else(pc.match_substring(shown, "."), shown, joined(shown, ".0")))
    elif form.number and _are_instants(values):
        made = form.text(_iso_8601(values))
    else:
        return pa.array(map(form.cell, values.to_pylist()), pa.string())
    if hard is not None and pc.any(hard).as_py():
        cells = pa.array(map(form.cell, values.filter(hard).to_pylist()), pa.string())
        made = pc.replace_with_mask(made, pc.fill_null(hard, False), cells)
    return pc.fill_null(made, form.cell(None))


def joined(*columns: pa.Array | str, between: str = "") -> pa.Array:
    """The columns' texts, one behind the other in each row."""
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(*columns, between)


def whole(lines: pa.Array) -> str:
    """All texts of a column as one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found: str = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "")[0].as_py()
    return found


def _is_whole(kind: pa.DataType) -> bool:
    """Whether these are whole numbers of any size: sums."""
    import pyarrow as pa

    return bool(pa.types.is_decimal(kind) and kind.scale == 0)


def _are_instants(values: pa.Array) -> bool:
    """Whether these are instants in microseconds and UTC, all of which Python has dates for."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if not pa.types.is_timestamp(kind) or kind.unit != "us" or kind.tz not in _UTC:
        return False
    ends = pc.min_max(values.cast(pa.int64())).as_py()
    return ends["min"] is None or (ends["min"] >= _FIRST_US and ends["max"] <= _LAST_US)


def _iso_8601(instants: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    shown = pc.replace_substring(instants.cast(pa.timestamp("us")).cast(pa.string()), " ", "T")
    return joined(pc.replace_substring(shown, ".000000", ""), "Z")

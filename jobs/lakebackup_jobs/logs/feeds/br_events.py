"""Parses events of the key-value change feed in Avro's binary form, many at once and without copies.

For each event it fills one row of a table of numbers, in which texts are positions and lengths. The code is
compiled: no record becomes a Python object, and no byte behind a record's end is read.
docs/change-logs-feed.md describes the fields.
"""

from __future__ import annotations

import numpy as np

from lakebackup.formats.logs import events
from lakebackup.formats.logs.br_event import FAMILIES, KINDS, VERSION
from lakebackup_jobs.kafka.format.records import take_bytes, take_long, take_optional
from lakebackup_jobs.kafka.memory import Bytes, Longs, compiled

#: Columns of the table that `read_events` fills, with one row for each event. Positions are in the batch's
#: bytes. A length of -1 and a number MISSING mean null. LETTER: a write's type, 0: none.
KIND, REGION, TABLE, CF, LETTER, START_TS, COMMIT_TS, RESOLVED_TS = range(8)
STORE, STORE_LENGTH, KEY, KEY_LENGTH, VALUE, VALUE_LENGTH, SUCCESSORS, AFTER_COUNT, WIDTH = range(8, 17)
MISSING = -(2**63)

PUT_KIND, DELETE_KIND, RESOLVED, CLOSED = range(len(KINDS))
DEFAULT_CF, WRITE_CF, LOCK_CF = range(len(FAMILIES))
_P, _D, _L, _R, _T = (ord(letter) for letter in "PDLRT")
_META = events.META_PREFIX[0]
_SHORT = ord("v")
# A letter and eight bytes of start ts.
_WRITE_BYTES = 9

WRONG = (
    "",
    f"its first byte is not {VERSION}, the version of the event format that is read here",
    "it is not one event in the feed's Avro schema",
    "a negative region or table id",
    "a mark needs a resolved_ts",
    "a change needs its column family and a key, a put of `default` needs a value",
    "a change of `default` needs a start_ts, one of `write` a commit_ts, neither below 0",
    "a put write's value is a type (P, D, L, R, T), 8 bytes of start ts, and for P perhaps `v` and a value",
    "the start ts in the write's value is another one than the event's, or later than its commit_ts",
    "table id 0 is of meta keys, which begin with `m`",
    "the name of a store is UTF-8, of 1 to 200 bytes",
)  # fmt: skip
_VERSION, _AVRO, _ID, _MARK, _CHANGE, _TS, _VALUE, _START, _META_ID, BAD_STORE = range(1, len(WRONG))


@compiled
def _optional_long(data: Bytes, position: int, end: int) -> tuple[int, int]:
    branch, position = take_long(data, position, end)
    if position < 0 or branch < 0 or branch > 1:
        return 0, -1
    if branch == 0:
        return MISSING, position
    return take_long(data, position, end)


@compiled
def _longs(data: Bytes, position: int, end: int, numbers: Longs, start: int) -> tuple[int, int]:
    """Read an Avro array of longs: their count, and the position after the array, -1 if it is invalid.

    Fills `numbers[start:]`, unless `numbers` is empty.
    """
    total = 0
    while True:
        items, position = take_long(data, position, end)
        if position < 0:
            return 0, -1
        if items == 0:
            return total, position
        if items < 0:
            items = -items
            size, position = take_long(data, position, end)
            if position < 0 or size < 0:
                return 0, -1
        if items < 0 or items > end - position:
            return 0, -1
        for _ in range(items):
            number, position = take_long(data, position, end)
            if position < 0:
                return 0, -1
            if numbers.shape[0] > 0:
                numbers[start + total] = number
            total += 1


@compiled
def _read_event(data: Bytes, position: int, end: int, row: Longs, nothing: Longs) -> int:
    """Fill one row; returns 0, or the index in WRONG of an encoding error. `nothing`: an empty array."""
    if position >= end or data[position] != VERSION:
        return _VERSION
    row[KIND], position = take_long(data, position + 1, end)
    if position < 0 or row[KIND] < 0 or row[KIND] > CLOSED:
        return _AVRO
    row[REGION], position = take_long(data, position, end)
    if position < 0:
        return _AVRO
    row[STORE_LENGTH], row[STORE] = take_bytes(data, position, end)
    if row[STORE] < 0:
        return _AVRO
    row[TABLE], position = take_long(data, row[STORE] + row[STORE_LENGTH], end)
    if position < 0:
        return _AVRO
    row[CF], position = _optional_long(data, position, end)
    if position < 0 or row[CF] > LOCK_CF or (row[CF] < 0 and row[CF] != MISSING):
        return _AVRO
    row[KEY_LENGTH], row[KEY], position = take_optional(data, position, end, 0)
    if position < 0:
        return _AVRO
    row[VALUE_LENGTH], row[VALUE], position = take_optional(data, position, end, 0)
    if position < 0:
        return _AVRO
    row[START_TS], position = _optional_long(data, position, end)
    if position < 0:
        return _AVRO
    row[COMMIT_TS], position = _optional_long(data, position, end)
    if position < 0:
        return _AVRO
    row[RESOLVED_TS], position = _optional_long(data, position, end)
    if position < 0:
        return _AVRO
    row[SUCCESSORS] = position
    row[AFTER_COUNT], position = _longs(data, position, end, nothing, 0)
    return 0 if position == end else _AVRO


@compiled
def _check_write(data: Bytes, row: Longs) -> int:
    """Split a put write's value into its parts; returns 0, or the index in WRONG of an error in it."""
    length, position = row[VALUE_LENGTH], row[VALUE]
    if length < _WRITE_BYTES:
        return _VALUE
    letter = np.int64(data[position])
    if letter not in (_P, _D, _L, _R, _T):
        return _VALUE
    start = np.int64(0)
    for i in range(1, _WRITE_BYTES):
        start = (start << 8) | np.int64(data[position + i])
    if start < 0 or start > row[COMMIT_TS] or (row[START_TS] != MISSING and row[START_TS] != start):
        return _START
    row[LETTER], row[START_TS] = letter, start
    if length == _WRITE_BYTES:
        row[VALUE_LENGTH] = -1
    elif letter == _P and data[position + _WRITE_BYTES] == _SHORT:
        row[VALUE], row[VALUE_LENGTH] = position + _WRITE_BYTES + 1, length - _WRITE_BYTES - 1
    else:
        return _VALUE
    return 0


@compiled
def _check(data: Bytes, row: Longs) -> int:  # noqa: C901 (calls between compiled functions cost)
    """Check and normalise an event that was parsed; returns 0, or the index in WRONG of an error in it."""
    row[LETTER] = 0
    if row[REGION] < 0 or row[TABLE] < 0:
        return _ID
    if row[STORE_LENGTH] < 1 or row[STORE_LENGTH] > 200:
        return BAD_STORE
    if row[KIND] >= RESOLVED:
        return _MARK if row[RESOLVED_TS] < 0 else 0
    if row[CF] == MISSING or row[KEY_LENGTH] < 0:
        return _CHANGE
    if row[CF] == LOCK_CF:
        return 0
    if row[TABLE] == 0 and (row[KEY_LENGTH] == 0 or data[row[KEY]] != _META):
        return _META_ID
    if row[CF] == DEFAULT_CF:
        row[COMMIT_TS] = MISSING
        if row[KIND] == DELETE_KIND:
            row[VALUE_LENGTH] = -1
        elif row[VALUE_LENGTH] < 0:
            return _CHANGE
        return _TS if row[START_TS] < 0 else 0
    if row[COMMIT_TS] < 0:
        return _TS
    if row[KIND] == PUT_KIND:
        return _check_write(data, row)
    row[VALUE_LENGTH] = -1
    if row[START_TS] < 0:
        row[START_TS] = 0
    return 0


@compiled
def read_events(data: Bytes, ends: Longs, rows: Longs, nothing: Longs) -> tuple[int, int]:
    """Fill `rows`. Event i is `data[ends[i]:ends[i + 1]]`. `nothing`: an empty array.

    Returns (-1, 0), or the first invalid event and its index in WRONG.
    """
    for i in range(rows.shape[0]):
        wrong = _read_event(data, ends[i], ends[i + 1], rows[i], nothing)
        if wrong == 0:
            wrong = _check(data, rows[i])
        if wrong != 0:
            return i, wrong
    return -1, 0


@compiled
def find_successors(data: Bytes, ends: Longs, rows: Longs, indices: Longs, successors: Longs) -> None:
    total = 0
    for i in indices:
        count, _ = _longs(data, rows[i, SUCCESSORS], ends[i + 1], successors, total)
        total += count

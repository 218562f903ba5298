"""Events of the key-value change feed in Avro's binary form: every part of many is found, none is copied.

In compiled code; no record becomes a Python object, and no byte behind a record's end is looked at. What the
fields mean: docs/change-logs-feed.md.
"""

from __future__ import annotations

import numpy as np

from lakebackup.formats.logs import events
from lakebackup.formats.logs.br_event import FAMILIES, KINDS, VERSION
from lakebackup_jobs.kafka.format.records import take_bytes, take_long, take_optional
from lakebackup_jobs.kafka.memory import Bytes, Longs, compiled

#: Columns of the table that `read_events` fills, one row an event; positions are into the batch's bytes,
#: lengths -1 are null, numbers MISSING are null. LETTER: a write's type, 0: none.
KIND, REGION, TABLE, CF, LETTER, START_TS, COMMIT_TS, RESOLVED_TS = range(8)
STORE, STORE_LENGTH, KEY, KEY_LENGTH, VALUE, VALUE_LENGTH, AFTER, AFTER_COUNT, WIDTH = range(8, 17)
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
_VERSION, _AVRO, _ID, _MARK, _PLACE, _TS, _VALUE, _START, _META_ID, BAD_STORE = range(1, len(WRONG))


@compiled
def _optional_long(data: Bytes, at: int, end: int) -> tuple[int, int]:
    branch, at = take_long(data, at, end)
    if at < 0 or branch < 0 or branch > 1:
        return 0, -1
    if branch == 0:
        return MISSING, at
    return take_long(data, at, end)


@compiled
def _longs(data: Bytes, at: int, end: int, found: Longs, place: int) -> tuple[int, int]:
    """An Avro array of longs: how many, and the position after it, -1 if wrong; fills `found[place:]`."""
    total = 0
    while True:
        items, at = take_long(data, at, end)
        if at < 0:
            return 0, -1
        if items == 0:
            return total, at
        if items < 0:
            items = -items
            size, at = take_long(data, at, end)
            if at < 0 or size < 0:
                return 0, -1
        if items < 0 or items > end - at:
            return 0, -1
        for _ in range(items):
            number, at = take_long(data, at, end)
            if at < 0:
                return 0, -1
            if found.shape[0] > 0:
                found[place + total] = number
            total += 1


@compiled
def _read_event(data: Bytes, at: int, end: int, row: Longs, nothing: Longs) -> int:
    """Fill one row; 0, or what is wrong with the bytes as such."""
    if at >= end or data[at] != VERSION:
        return _VERSION
    row[KIND], at = take_long(data, at + 1, end)
    if at < 0 or row[KIND] < 0 or row[KIND] > CLOSED:
        return _AVRO
    row[REGION], at = take_long(data, at, end)
    if at < 0:
        return _AVRO
    row[STORE_LENGTH], row[STORE] = take_bytes(data, at, end)
    if row[STORE] < 0:
        return _AVRO
    row[TABLE], at = take_long(data, row[STORE] + row[STORE_LENGTH], end)
    if at < 0:
        return _AVRO
    row[CF], at = _optional_long(data, at, end)
    if at < 0 or row[CF] > LOCK_CF or (row[CF] < 0 and row[CF] != MISSING):
        return _AVRO
    row[KEY_LENGTH], row[KEY], at = take_optional(data, at, end, 0)
    if at < 0:
        return _AVRO
    row[VALUE_LENGTH], row[VALUE], at = take_optional(data, at, end, 0)
    if at < 0:
        return _AVRO
    row[START_TS], at = _optional_long(data, at, end)
    if at < 0:
        return _AVRO
    row[COMMIT_TS], at = _optional_long(data, at, end)
    if at < 0:
        return _AVRO
    row[RESOLVED_TS], at = _optional_long(data, at, end)
    if at < 0:
        return _AVRO
    row[AFTER] = at
    row[AFTER_COUNT], at = _longs(data, at, end, nothing, 0)
    return 0 if at == end else _AVRO


@compiled
def _check_write(data: Bytes, row: Longs) -> int:
    """Take a put write's value apart; 0, or what is wrong with it."""
    length, at = row[VALUE_LENGTH], row[VALUE]
    if length < _WRITE_BYTES:
        return _VALUE
    letter = np.int64(data[at])
    if letter not in (_P, _D, _L, _R, _T):
        return _VALUE
    start = np.int64(0)
    for i in range(1, _WRITE_BYTES):
        start = (start << 8) | np.int64(data[at + i])
    if start < 0 or start > row[COMMIT_TS] or (row[START_TS] != MISSING and row[START_TS] != start):
        return _START
    row[LETTER], row[START_TS] = letter, start
    if length == _WRITE_BYTES:
        row[VALUE_LENGTH] = -1
    elif letter == _P and data[at + _WRITE_BYTES] == _SHORT:
        row[VALUE], row[VALUE_LENGTH] = at + _WRITE_BYTES + 1, length - _WRITE_BYTES - 1
    else:
        return _VALUE
    return 0


@compiled
def _check(data: Bytes, row: Longs) -> int:  # noqa: C901 (calls between compiled functions cost)
    """What a readable event must be besides; 0, or what is wrong."""
    row[LETTER] = 0
    if row[REGION] < 0 or row[TABLE] < 0:
        return _ID
    if row[STORE_LENGTH] < 1 or row[STORE_LENGTH] > 200:
        return BAD_STORE
    if row[KIND] >= RESOLVED:
        return _MARK if row[RESOLVED_TS] < 0 else 0
    if row[CF] == MISSING or row[KEY_LENGTH] < 0:
        return _PLACE
    if row[CF] == LOCK_CF:
        return 0
    if row[TABLE] == 0 and (row[KEY_LENGTH] == 0 or data[row[KEY]] != _META):
        return _META_ID
    if row[CF] == DEFAULT_CF:
        row[COMMIT_TS] = MISSING
        if row[KIND] == DELETE_KIND:
            row[VALUE_LENGTH] = -1
        elif row[VALUE_LENGTH] < 0:
            return _PLACE
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
    """Fill `rows`; event i is `data[ends[i]:ends[i + 1]]`. (-1, 0), or which one is bad and why."""
    for i in range(rows.shape[0]):
        wrong = _read_event(data, ends[i], ends[i + 1], rows[i], nothing)
        if wrong == 0:
            wrong = _check(data, rows[i])
        if wrong != 0:
            return i, wrong
    return -1, 0


@compiled
def find_successors(data: Bytes, ends: Longs, rows: Longs, chosen: Longs, found: Longs) -> None:
    place = 0
    for i in chosen:
        count, _ = _longs(data, rows[i, AFTER], ends[i + 1], found, place)
        place += count

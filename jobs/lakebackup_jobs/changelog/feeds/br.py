"""The key-value change feed: what a transactional store writes below its transactions, in Avro.

Event format and what producers promise: docs/change-logs-feed.md. Records are read in compiled code, none
becomes a Python object, and no byte behind a record's end is looked at.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.changelog import events
from lakebackup.changelog.br_event import FAMILIES, KINDS, ROOT_REGION, VERSION
from lakebackup.changelog.meta_keys import DESCRIBES
from lakebackup.errors import Damaged
from lakebackup.patterns import compile_pattern, is_internal
from lakebackup_jobs.changelog.feeds import Decoded
from lakebackup_jobs.kafka.arrow import binary
from lakebackup_jobs.kafka.memory import Bytes, Longs, compiled
from lakebackup_jobs.kafka.records import take_bytes, take_long, take_optional

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakebackup.changelog.events import Domain
    from lakebackup.storage import Storage
    from lakebackup_jobs.changelog.feeds import Range

#: Columns of the table that `read_events` fills, one row an event; positions are into the batch's bytes,
#: lengths -1 are null, numbers MISSING are null. LETTER: a write's type, 0: none.
KIND, REGION, TABLE, CF, LETTER, START_TS, COMMIT_TS, RESOLVED_TS = range(8)
STORE, STORE_LENGTH, KEY, KEY_LENGTH, VALUE, VALUE_LENGTH, AFTER, AFTER_COUNT, WIDTH = range(8, 17)
MISSING = -(2**63)

_PUT, _DELETE, _RESOLVED, _CLOSED = range(len(KINDS))
_DEFAULT, _WRITE, _LOCK = range(len(FAMILIES))
_P, _D, _L, _R, _T = (ord(letter) for letter in "PDLRT")
_META = events.META_PREFIX[0]
_SHORT = ord("v")
# A letter and eight bytes of start ts.
_WRITE_BYTES = 9

_WRONG = (
    "",
    f"its first byte is not {VERSION}, the version of the event format that is read here",
    "it is not one event in the feed's Avro schema",
    "a negative region or table id",
    "a mark needs a resolved_ts",
    "a change needs its column family and a key",
    "a change of `default` needs a start_ts, one of `write` a commit_ts, neither below 0",
    "a put write's value is a type (P, D, L, R, T), 8 bytes of start ts, and for P perhaps `v` and a value",
    "the start ts in the write's value is another one than the event's, or later than its commit_ts",
    "table id 0 is of meta keys, which begin with `m`",
    "the name of a store is UTF-8, of 1 to 200 bytes",
)  # fmt: skip
_VERSION, _AVRO, _ID, _MARK, _PLACE, _TS, _VALUE, _START, _META_ID, _STORE = range(1, len(_WRONG))


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
    if at < 0 or row[KIND] < 0 or row[KIND] > _CLOSED:
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
    if at < 0 or row[CF] > _LOCK or (row[CF] < 0 and row[CF] != MISSING):
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
        return _STORE
    if row[KIND] >= _RESOLVED:
        return _MARK if row[RESOLVED_TS] < 0 else 0
    if row[CF] == MISSING or row[KEY_LENGTH] < 0:
        return _PLACE
    if row[CF] == _LOCK:
        return 0
    if row[TABLE] == 0 and (row[KEY_LENGTH] == 0 or data[row[KEY]] != _META):
        return _META_ID
    if row[CF] == _DEFAULT:
        row[COMMIT_TS] = MISSING
        if row[KIND] == _DELETE:
            row[VALUE_LENGTH] = -1
        elif row[VALUE_LENGTH] < 0:
            return _PLACE
        return _TS if row[START_TS] < 0 else 0
    if row[COMMIT_TS] < 0:
        return _TS
    if row[KIND] == _PUT:
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
def _successors(data: Bytes, ends: Longs, rows: Longs, chosen: Longs, found: Longs) -> None:
    place = 0
    for i in chosen:
        count, _ = _longs(data, rows[i, AFTER], ends[i + 1], found, place)
        place += count


_CF_NAMES = pa.array(FAMILIES[:_LOCK])
_OP_NAMES = pa.array(KINDS[:_RESOLVED])
_LETTERS = pa.array([chr(code) for code in range(128)])


def _words(codes: Longs, names: Any) -> Any:
    return pa.DictionaryArray.from_arrays(codes.astype(np.int8), names).cast(pa.string())


def _numbers(column: Longs) -> Any:
    missing = column == MISSING
    return pa.array(column, mask=missing) if missing.any() else pa.array(np.ascontiguousarray(column))


@dataclass(slots=True)
class BrDecoder:
    """Decodes one partition; keeps nothing from batch to batch."""

    of: Range

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """Changes, marks, and how many events were left out: `lock` (of the family lock), `meta` (keys that
        name nothing). Raises Damaged."""
        values, offsets = records.column("value"), records.column("offset").to_numpy()
        if values.null_count:
            first = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
            raise self._damaged(offsets, first, "it has no value")
        data, ends = _buffers(values)
        rows: Longs = np.empty((len(records), WIDTH), np.int64)
        bad, wrong = read_events(data, ends, rows, np.empty(0, np.int64))
        if bad >= 0:
            raise self._damaged(offsets, bad, _WRONG[wrong])
        marks = np.flatnonzero(rows[:, KIND] >= _RESOLVED)
        locks = (rows[:, KIND] < _RESOLVED) & (rows[:, CF] == _LOCK)
        taken = np.flatnonzero((rows[:, KIND] < _RESOLVED) & ~locks)
        kept = self._without_other_meta(data, rows, taken)
        skipped = {"lock": int(locks.sum()), "meta": len(taken) - len(kept)}
        return Decoded(
            self._records(data, rows, kept, offsets),
            self._marks(data, ends, rows, marks, offsets),
            skipped={reason: count for reason, count in skipped.items() if count},
        )

    def finish(self) -> None:
        """Marks say all."""

    def _damaged(self, offsets: Longs, at: int, why: str) -> Damaged:
        place = f"topic {self.of.topic}, partition {self.of.partition}, offset {offsets[at]}"
        return Damaged(
            f"The event at {place} cannot be read: {why}.",
            hint="docs/change-logs-feed.md says what the feed's producer has to send.",
        )

    @staticmethod
    def _without_other_meta(data: Bytes, rows: Longs, taken: Longs) -> Longs:
        meta = rows[taken, TABLE] == events.META_TABLE
        if not meta.any():
            return taken
        found = rows[taken[meta]]
        keys = binary(data, found[:, KEY], found[:, KEY_LENGTH])
        kept = ~meta
        named: Any = pc.match_substring_regex(keys, DESCRIBES)
        kept[meta] = named.to_numpy(zero_copy_only=False)
        left: Longs = taken[kept]
        return left

    def _stores(self, data: Bytes, rows: Longs, chosen: Longs, offsets: Longs) -> Any:
        names = binary(data, rows[chosen, STORE], rows[chosen, STORE_LENGTH])
        try:
            return names.cast(pa.string())
        except pa.ArrowInvalid:
            for at, name in zip(chosen.tolist(), names.to_pylist(), strict=True):
                try:
                    name.decode()
                except UnicodeDecodeError:
                    raise self._damaged(offsets, at, _WRONG[_STORE]) from None
            raise

    def _records(self, data: Bytes, rows: Longs, chosen: Longs, offsets: Longs) -> pa.RecordBatch:
        found, count = rows[chosen], len(chosen)
        letters = found[:, LETTER]
        kinds = pa.DictionaryArray.from_arrays(pa.array(letters.astype(np.int8), mask=letters == 0), _LETTERS)
        return pa.RecordBatch.from_arrays(
            [
                self._stores(data, rows, chosen, offsets),
                _numbers(found[:, REGION]),
                _numbers(found[:, TABLE]),
                _words(found[:, CF], _CF_NAMES),
                _words(found[:, KIND], _OP_NAMES),
                binary(data, found[:, KEY], found[:, KEY_LENGTH]),
                binary(data, found[:, VALUE], found[:, VALUE_LENGTH]),
                _numbers(found[:, START_TS]),
                _numbers(found[:, COMMIT_TS]),
                kinds.cast(pa.string()),
                # A key is written once at a commit ts.
                pa.array(np.zeros(count, np.int64)),
                pa.array(np.zeros(count, np.int32)),
                pa.array(offsets[chosen]),
            ],
            schema=events.captured(),
        )

    def _marks(self, data: Bytes, ends: Longs, rows: Longs, chosen: Longs, offsets: Longs) -> pa.RecordBatch:
        found = rows[chosen]
        after = np.zeros(len(chosen) + 1, np.int32)
        after[1:] = np.cumsum(found[:, AFTER_COUNT])
        successors: Longs = np.empty(int(after[-1]), np.int64)
        if len(successors):
            _successors(data, ends, rows, chosen, successors)
        return pa.RecordBatch.from_arrays(
            [
                self._stores(data, rows, chosen, offsets),
                _numbers(found[:, REGION]),
                _numbers(found[:, RESOLVED_TS]),
                pa.array(found[:, KIND] == _CLOSED),
                pa.ListArray.from_arrays(pa.array(after), pa.array(successors)),
                pa.array(offsets[chosen]),
            ],
            schema=events.marks(),
        )


def _buffers(values: Any) -> tuple[Bytes, Longs]:
    """The bytes of a binary array, and the positions where its pieces begin and the last one ends."""
    _, ends, data = values.buffers()
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    places = np.frombuffer(ends, width)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return np.frombuffer(data or b"", np.uint8), places


@dataclass(frozen=True, slots=True)
class BrFeed:
    """`names`: topics, or regular expressions that match whole names."""

    names: tuple[str, ...]
    domain: Domain = "tso"

    def topics(self, known: Sequence[str]) -> list[str]:
        """Internal topics come only by name."""
        found = [compile_pattern(name) for name in self.names]
        return sorted(
            topic
            for topic in known
            if topic in self.names or (not is_internal(topic) and any(one.fullmatch(topic) for one in found))
        )

    def prepare(
        self, storage: Storage, folder: str, before: str | None, resolved_ts: int | None
    ) -> Mapping[str, Any]:
        """Nothing: an event says all itself."""
        return {}

    def decoder(self, storage: Storage, of: Range, context: Mapping[str, Any]) -> BrDecoder:
        return BrDecoder(of)

    def checkpoint(
        self,
        storage: Storage,
        folder: str,
        context: Mapping[str, Any],
        finished: Iterator[Mapping[str, Any]],
        regions: Iterator[Mapping[str, Any]],
        resolved_ts: int | None,
    ) -> int | None:
        """The least ts that a region is resolved up to, never less than `resolved_ts`.

        A region counts until it is closed and all its successors have been heard of. As long as the root, or
        one of the regions that it lists, has not been, nothing is known to be whole beyond `resolved_ts`.
        """
        resolved: dict[int, int] = {}
        closed: dict[int, list[int]] = {}
        for row in regions:
            region = int(row["region"])
            resolved[region] = row["resolved_ts"]
            if row["closed"]:
                closed[region] = _ids(row["successors"])
        first = closed.get(ROOT_REGION)
        if not first or not resolved.keys() >= set(first):
            return resolved_ts
        over = {region for region, after in closed.items() if resolved.keys() >= set(after)}
        least = min((ts for region, ts in resolved.items() if region not in over), default=None)
        return resolved_ts if least is None else max(least, resolved_ts or 0)


def _ids(successors: str | Sequence[int] | None) -> list[int]:
    return json.loads(successors) if isinstance(successors, str) else list(successors or ())

"""The key-value change feed: what a transactional store writes below its transactions, in Avro.

Event format and what producers promise: docs/change-logs-feed.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import Damaged
from lakebackup.formats.logs import events
from lakebackup.formats.logs.br_event import FAMILIES, KINDS, ROOT_REGION
from lakebackup.formats.logs.meta_keys import CAPTURED_KEYS
from lakebackup.rules.patterns import compile_pattern, is_internal
from lakebackup_jobs.kafka.format.arrow import binary
from lakebackup_jobs.logs.feeds import Decoded
from lakebackup_jobs.logs.feeds import br_events as ev

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakebackup.formats.logs.events import Domain
    from lakebackup.storage import Storage
    from lakebackup_jobs.kafka.memory import Bytes, Longs
    from lakebackup_jobs.logs.feeds import Range
    from lakebackup_jobs.logs.skips import Skipped

_CF_NAMES = pa.array(FAMILIES[: ev.LOCK_CF])
_OP_NAMES = pa.array(KINDS[: ev.RESOLVED])
_LETTERS = pa.array([chr(code) for code in range(128)])


def _words(codes: Longs, names: Any) -> Any:
    return pa.DictionaryArray.from_arrays(codes.astype(np.int8), names).cast(pa.string())


def _numbers(column: Longs) -> Any:
    missing = column == ev.MISSING
    return pa.array(column, mask=missing) if missing.any() else pa.array(np.ascontiguousarray(column))


@dataclass(slots=True)
class BrDecoder:
    """Decodes one partition; keeps nothing from batch to batch."""

    of: Range

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """Changes and marks; locks are left out, and meta keys that describe nothing. Raises Damaged."""
        values, offsets = records.column("value"), records.column("offset").to_numpy()
        if values.null_count:
            first = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
            raise self._damaged(offsets, first, "it has no value")
        data, ends = _buffers(values)
        rows: Longs = np.empty((len(records), ev.WIDTH), np.int64)
        bad, wrong = ev.read_events(data, ends, rows, np.empty(0, np.int64))
        if bad >= 0:
            raise self._damaged(offsets, bad, ev.WRONG[wrong])
        marks = np.flatnonzero(rows[:, ev.KIND] >= ev.RESOLVED)
        taken = np.flatnonzero((rows[:, ev.KIND] < ev.RESOLVED) & (rows[:, ev.CF] != ev.LOCK_CF))
        kept = self._without_other_meta(data, rows, taken)
        return Decoded(
            self._records(data, rows, kept, offsets),
            self._marks(data, ends, rows, marks, offsets),
        )

    def skip(self, records: pa.RecordBatch) -> None:
        """Nothing: what they say is lost."""

    def finish(self) -> None:
        """Nothing: the marks are enough."""

    def _damaged(self, offsets: Longs, at: int, why: str) -> Damaged:
        place = f"topic {self.of.topic}, partition {self.of.partition}, offset {offsets[at]}"
        return Damaged(
            f"The event at {place} cannot be read: {why}.",
            hint="Its producer must send the byte 1, then the event in Avro. Debezium needs --feed debezium.",
        )

    @staticmethod
    def _without_other_meta(data: Bytes, rows: Longs, taken: Longs) -> Longs:
        meta = rows[taken, ev.TABLE] == events.META_TABLE
        if not meta.any():
            return taken
        found = rows[taken[meta]]
        keys = binary(data, found[:, ev.KEY], found[:, ev.KEY_LENGTH])
        kept = ~meta
        named: Any = pc.match_substring_regex(keys, CAPTURED_KEYS)
        kept[meta] = named.to_numpy(zero_copy_only=False)
        left: Longs = taken[kept]
        return left

    def _stores(self, data: Bytes, rows: Longs, chosen: Longs, offsets: Longs) -> Any:
        names = binary(data, rows[chosen, ev.STORE], rows[chosen, ev.STORE_LENGTH])
        try:
            return names.cast(pa.string())
        except pa.ArrowInvalid:
            for at, name in zip(chosen.tolist(), names.to_pylist(), strict=True):
                try:
                    name.decode()
                except UnicodeDecodeError:
                    raise self._damaged(offsets, at, ev.WRONG[ev.BAD_STORE]) from None
            raise

    def _records(self, data: Bytes, rows: Longs, chosen: Longs, offsets: Longs) -> pa.RecordBatch:
        found, count = rows[chosen], len(chosen)
        letters = found[:, ev.LETTER]
        kinds = pa.DictionaryArray.from_arrays(pa.array(letters.astype(np.int8), mask=letters == 0), _LETTERS)
        return pa.RecordBatch.from_arrays(
            [
                self._stores(data, rows, chosen, offsets),
                _numbers(found[:, ev.REGION]),
                _numbers(found[:, ev.TABLE]),
                _words(found[:, ev.CF], _CF_NAMES),
                _words(found[:, ev.KIND], _OP_NAMES),
                binary(data, found[:, ev.KEY], found[:, ev.KEY_LENGTH]),
                binary(data, found[:, ev.VALUE], found[:, ev.VALUE_LENGTH]),
                _numbers(found[:, ev.START_TS]),
                _numbers(found[:, ev.COMMIT_TS]),
                kinds.cast(pa.string()),
                # A key is written once at a commit ts.
                pa.array(np.zeros(count, np.int64)),
                pa.array(np.zeros(count, np.int32)),
                pa.array(offsets[chosen]),
            ],
            schema=events.captured_schema(),
        )

    def _marks(self, data: Bytes, ends: Longs, rows: Longs, chosen: Longs, offsets: Longs) -> pa.RecordBatch:
        found = rows[chosen]
        after = np.zeros(len(chosen) + 1, np.int32)
        after[1:] = np.cumsum(found[:, ev.AFTER_COUNT])
        successors: Longs = np.empty(int(after[-1]), np.int64)
        if len(successors):
            ev.find_successors(data, ends, rows, chosen, successors)
        return pa.RecordBatch.from_arrays(
            [
                self._stores(data, rows, chosen, offsets),
                _numbers(found[:, ev.REGION]),
                _numbers(found[:, ev.RESOLVED_TS]),
                pa.array(found[:, ev.KIND] == ev.CLOSED),
                pa.ListArray.from_arrays(pa.array(after), pa.array(successors)),
                pa.array(offsets[chosen]),
            ],
            schema=events.marks_schema(),
        )


def _buffers(values: Any) -> tuple[Bytes, Longs]:
    """The bytes of a binary array, and the positions where its values begin and the last one ends."""
    if not len(values):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, ends, data = values.buffers()
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    places = np.frombuffer(ends, width)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return np.frombuffer(data or b"", np.uint8), places


@dataclass(frozen=True, slots=True)
class BrFeed:
    """`names`: topics, or regular expressions that match whole names. `skipped`: messages that are left
    out."""

    names: tuple[str, ...]
    domain: Domain = "tso"
    skipped: Skipped = field(default_factory=dict)

    def topics(self, known: Sequence[str]) -> list[str]:
        """Internal topics match only by name."""
        found = [compile_pattern(name) for name in self.names]
        return sorted(
            topic
            for topic in known
            if topic in self.names or (not is_internal(topic) and any(one.fullmatch(topic) for one in found))
        )

    def own_topics(self, names: Sequence[str]) -> list[str]:
        """None."""
        return []

    def prepare(
        self, storage: Storage, folder: str, before: str | None, resolved_ts: int | None
    ) -> Mapping[str, Any]:
        """Nothing: events are complete in themselves."""
        return {}

    def decoder(self, storage: Storage, of: Range, context: Mapping[str, Any]) -> BrDecoder:
        return BrDecoder(of)

    def checkpoint(
        self,
        storage: Storage,
        context: Mapping[str, Any],
        finished: Iterator[Mapping[str, Any]],
        regions: Iterator[Mapping[str, Any]],
        resolved_ts: int | None,
    ) -> int | None:
        """The least ts that a region is resolved up to, never less than `resolved_ts`.

        A region counts until it is closed and all its successors are known; so does the root, which is
        resolved up to 0.
        """
        resolved: dict[int, int] = {}
        closed: dict[int, list[int]] = {}
        for row in regions:
            region = int(row["region"])
            resolved[region] = row["resolved_ts"]
            if row["closed"]:
                closed[region] = row["successors"] or []
        if ROOT_REGION not in closed:
            return resolved_ts
        over = {region for region, after in closed.items() if resolved.keys() >= set(after)}
        least = min((ts for region, ts in resolved.items() if region not in over), default=0)
        return max(least, resolved_ts or 0) if least else resolved_ts

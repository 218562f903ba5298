"""What is known of a run of records: counts, bounds of time, offset and key, over every one of them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

KEY_LIMIT = 64
# A name of its own: inside FileStats, `bytes` is a field.
Filter = bytes


@dataclass(frozen=True, slots=True)
class BlockStats:
    """Figures of `entries` > 0 records.

    Timestamps in ms (-1: none), least and greatest. `first_offset`, `last_offset` in reading order. `low_key`
    and `high_key`: least and greatest non-null key in byte order, each cut at KEY_LIMIT + 1 bytes; None if
    all are null. `min_tid`, `max_tid`: of an engine's messages; None where they were not read.
    """

    entries: int
    min_ts: int
    max_ts: int
    first_offset: int
    last_offset: int
    null_keys: int
    tombstones: int
    low_key: bytes | None
    high_key: bytes | None
    min_tid: int | None = None
    max_tid: int | None = None

    def __add__(self, later: BlockStats) -> BlockStats:
        """The figures of both runs, `later` being the one read afterwards."""
        low = [key for key in (self.low_key, later.low_key) if key is not None]
        high = [key for key in (self.high_key, later.high_key) if key is not None]
        bounds = (self.min_tid, self.max_tid, later.min_tid, later.max_tid)
        tids = [tid for tid in bounds if tid is not None]
        return replace(
            self,
            entries=self.entries + later.entries,
            min_ts=min(self.min_ts, later.min_ts),
            max_ts=max(self.max_ts, later.max_ts),
            last_offset=later.last_offset,
            null_keys=self.null_keys + later.null_keys,
            tombstones=self.tombstones + later.tombstones,
            low_key=min(low, default=None),
            high_key=max(high, default=None),
            min_tid=min(tids) if len(tids) == 4 else None,
            max_tid=max(tids) if len(tids) == 4 else None,
        )

    @property
    def start_key(self) -> str | None:
        """A lower bound of the keys in lower hex, cut at 64 bytes; None when there is no key."""
        return None if self.low_key is None else self.low_key[:KEY_LIMIT].hex()

    @property
    def end_key(self) -> str | None:
        """An upper bound (inclusive) of the keys in lower hex; rounded up where cut at 64 bytes.

        None when there is no key, or when the cut key is all 0xff and so has no upper bound of that length.
        """
        if self.high_key is None or len(self.high_key) <= KEY_LIMIT:
            return None if self.high_key is None else self.high_key.hex()
        kept = self.high_key[:KEY_LIMIT].rstrip(b"\xff")
        return (kept[:-1] + bytes([kept[-1] + 1])).hex() if kept else None


@dataclass(frozen=True, slots=True)
class FileStats:
    """One data file as the catalog's `files` describes it; positions are [first offset, last offset + 1).

    `keys`: its key filter as it is stored; None when there is none.
    """

    entries: int
    bytes: int
    raw_bytes: int
    sha256: str
    min_ts: int
    max_ts: int
    start_position: int
    end_position: int
    start_key: str | None
    end_key: str | None
    null_keys: int
    tombstones: int
    min_tid: int | None = None
    max_tid: int | None = None
    keys: Filter | None = field(default=None, repr=False)

    def columns(self) -> dict[str, Any]:
        """The columns of the file's row: all but the filter, of which a row has only the place."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "keys"}

    @classmethod
    def of(
        cls, stats: BlockStats, *, size: int, raw_size: int, sha256: str, keys: Filter | None = None
    ) -> FileStats:
        """The row of a file of `size` bytes whose blocks were `raw_size` bytes before compression."""
        return cls(
            entries=stats.entries,
            bytes=size,
            raw_bytes=raw_size,
            sha256=sha256,
            min_ts=stats.min_ts,
            max_ts=stats.max_ts,
            start_position=stats.first_offset,
            end_position=stats.last_offset + 1,
            start_key=stats.start_key,
            end_key=stats.end_key,
            null_keys=stats.null_keys,
            tombstones=stats.tombstones,
            min_tid=stats.min_tid,
            max_tid=stats.max_tid,
            keys=keys,
        )

"""Reads the headers of an engine's messages, and selects messages by them.

Compiled code reads the headers of all messages of a block in one pass, without a Python object for each
message. A message that cannot be read ends the backup or restore with an error that names its topic,
partition and offset: without its tid, no restore could tell whether it belongs to the restored point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakebackup.errors import Damaged, Refused, UsageProblem
from lakebackup.formats.queues.headers import WATERMARK, HeaderNames, Kind
from lakebackup.formats.queues.watermark import Watermark, read_watermark
from lakebackup_jobs.kafka.format.arrow import binary
from lakebackup_jobs.kafka.format.records import HEADER_COUNT, OFFSET, VALUE, VALUE_LENGTH, Columns
from lakebackup_jobs.kafka.memory import Bytes, Longs, compiled, load8, load64
from lakebackup_jobs.queues.transaction_ids import RowMask, members

_BEGIN, _COMMIT, _ROLLBACK, _WATERMARK = (
    int(kind) for kind in (Kind.BEGIN, Kind.COMMIT, Kind.ROLLBACK, Kind.WATERMARK)
)
_UNKNOWN = 255
#: The problems that a message may have.
_OK, _NO_TID, _BAD_TID, _TWO_TIDS, _TWO_TRANSACTIONS, _TWO_KINDS, _BAD_KIND, _NO_ID, _NOT_UTF8 = range(9)
#: The slots of the array in which `_read_headers` returns the first problem, its row and its header, and
#: whether any transaction's id is not ASCII. The last number is the array's length.
_PROBLEM, _ROW, _HEADER, _NON_ASCII, _STATE = range(5)
_MAX_TID = 2**63 - 1
_EXCERPT_BYTES = 40


@dataclass(frozen=True, slots=True)
class Messages:
    """The headers of messages, as columns with one entry for each message, in order.

    `tids`: int64; -1 for a watermark. `kinds`: uint8 (headers.Kind). `transactions`: int64[n, 2], the
    position of the transaction's id in the block and its length; length -1: no transaction.
    """

    tids: Longs
    kinds: Bytes
    transactions: Longs

    def __len__(self) -> int:
        return len(self.tids)

    def select(self, rows: RowMask) -> Messages:
        """Return the messages that `rows` selects."""
        return self if rows.all() else Messages(self.tids[rows], self.kinds[rows], self.transactions[rows])

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The least and the greatest tid; None when no message has one."""
        tids = self.tids[self.kinds != _WATERMARK]
        return (int(tids.min()), int(tids.max())) if len(tids) else None


@compiled
def _equals(block: Bytes, start: int, length: int, name: Bytes) -> bool:
    if length != name.shape[0]:
        return False
    for i in range(length):  # noqa: SIM110 - compiled
        if block[start + i] != name[i]:
            return False
    return True


@compiled
def _parse_tid(block: Bytes, start: int, length: int, binary: bool) -> int:
    """Return the tid in these bytes; -1 when they are no tid."""
    if binary:
        if length != 8 or block[start] > 0x7F:
            return -1
        tid = 0
        for i in range(8):
            tid = (tid << 8) | int(block[start + i])
        return tid
    if length < 1:
        return -1
    tid = 0
    for i in range(length):
        digit = int(block[start + i]) - 48
        if digit < 0 or digit > 9 or tid > (_MAX_TID - digit) // 10:
            return -1
        tid = tid * 10 + digit
    return tid


@compiled
def _parse_kind(block: Bytes, start: int, length: int, words: Bytes, ends: Longs) -> int:
    """Return the kind that these bytes spell, in upper or lower case; _UNKNOWN when they spell none.

    `words` are the kinds' names, one behind the other; `ends` says where each name ends.
    """
    begin = 0
    for kind in range(ends.shape[0]):
        if ends[kind] - begin == length:
            equal = True
            for i in range(length):
                letter = int(block[start + i])
                if letter >= 65 and letter <= 90:
                    letter += 32
                if letter != int(words[begin + i]):
                    equal = False
            if equal:
                return kind
        begin = ends[kind]
    return _UNKNOWN


@compiled
def _has_non_ascii(base: int, start: int, length: int) -> bool:
    """Return whether any of these bytes is not ASCII."""
    bits = 0
    i = 0
    while i + 8 <= length:
        bits |= load64(base + start + i)
        i += 8
    while i < length:
        bits |= load8(base + start + i) & 0xFF
        i += 1
    # A byte that is not ASCII has its highest bit set. The mask is 0x8080808080808080 as a signed number.
    return (bits & -0x7F7F7F7F7F7F7F80) != 0


@compiled
def _read_headers(  # noqa: C901 (one pass over each message's headers)
    block: Bytes, rows: Longs, headers: Longs, tid_name: Bytes, transaction_name: Bytes, kind_name: Bytes,
    watermark_name: Bytes, binary: bool, words: Bytes, ends: Longs, tids: Longs, kinds: Bytes,
    transactions: Longs, state: Longs
) -> None:  # fmt: skip
    """Fill `tids`, `kinds` and `transactions` from `headers`; stop at the first message with a problem.

    `state` records that problem, with its row and header, and whether a transaction's id is not ASCII.
    """
    base = block.ctypes.data
    end_header = 0
    for i in range(rows.shape[0]):
        first_header = end_header
        end_header += rows[i, HEADER_COUNT]
        # -2: no header has a tid yet (-1 is a header that cannot be read); -1: no header of that name yet.
        tid, transaction_header, kind, is_watermark = -2, -1, -1, False
        problem, header = _OK, -1
        transactions[i, 0], transactions[i, 1] = 0, -1
        for j in range(first_header, end_header):
            name, name_length, value, length = headers[j, 0], headers[j, 1], headers[j, 2], headers[j, 3]
            if _equals(block, name, name_length, tid_name):
                if tid > -2:
                    problem, header = _TWO_TIDS, j
                tid = _parse_tid(block, value, length, binary)
                if tid < 0 and problem == _OK:
                    problem, header = _BAD_TID, j
            elif _equals(block, name, name_length, transaction_name):
                if transaction_header >= 0 and problem == _OK:
                    problem, header = _TWO_TRANSACTIONS, j
                transaction_header = j
                if length > 0:
                    transactions[i, 0], transactions[i, 1] = value, length
                    if _has_non_ascii(base, value, length):
                        state[_NON_ASCII] = 1
            elif _equals(block, name, name_length, kind_name):
                if kind >= 0 and problem == _OK:
                    problem, header = _TWO_KINDS, j
                kind = _parse_kind(block, value, length, words, ends) if length >= 0 else _UNKNOWN
                if kind == _UNKNOWN and problem == _OK:
                    problem, header = _BAD_KIND, j
            elif _equals(block, name, name_length, watermark_name):
                is_watermark = True
        if is_watermark:
            tids[i], kinds[i], transactions[i, 1] = -1, _WATERMARK, -1
            continue
        if problem == _OK and tid < 0:
            problem = _NO_TID
        if problem == _OK and kind > 0 and transactions[i, 1] < 0:
            problem = _NO_ID
        if problem != _OK:
            state[_PROBLEM], state[_ROW], state[_HEADER] = problem, i, header
            return
        tids[i], kinds[i] = tid, max(kind, 0)


def _utf8(text: str) -> Bytes:
    return np.frombuffer(text.encode(), np.uint8)


_KIND_WORDS = [kind.name.lower() for kind in Kind if kind != Kind.WATERMARK]
_KIND_BYTES = _utf8("".join(_KIND_WORDS))
_KIND_ENDS: Longs = np.cumsum([len(word) for word in _KIND_WORDS]).astype(np.int64)
_WATERMARK_NAME = _utf8(WATERMARK)


def read_messages(columns: Columns, names: HeaderNames, location: str) -> Messages:
    """Read the headers of records. `location`: topic and partition for error messages, such as `delta.1[0]`.

    A transaction header with a null or an empty value names no transaction. Raises Refused, which names the
    offset, for a message without a tid that is no watermark; for a tid, an id or a kind that cannot be read;
    for a header that occurs twice; and for a message that begins or ends a transaction without naming it.
    """
    count = len(columns.rows)
    messages = Messages(np.empty(count, np.int64), np.empty(count, np.uint8), np.empty((count, 2), np.int64))
    state: Longs = np.zeros(_STATE, np.int64)
    headers = columns.headers()
    _read_headers(
        columns.data, columns.rows, headers, _utf8(names.tid), _utf8(names.transaction), _utf8(names.kind),
        _WATERMARK_NAME, names.tid_format == "int64", _KIND_BYTES, _KIND_ENDS, messages.tids,
        messages.kinds, messages.transactions, state
    )  # fmt: skip
    if state[_PROBLEM]:
        value = None
        if state[_HEADER] >= 0 and headers[state[_HEADER], 3] >= 0:
            start, length = headers[state[_HEADER], 2:].tolist()
            value = columns.data[start : start + length].tobytes()
        raise _refusal(int(state[_PROBLEM]), names, value, location, int(columns.rows[state[_ROW], OFFSET]))
    if state[_NON_ASCII]:
        _check_ids(columns, messages, names, location)
    return messages


def _check_ids(columns: Columns, messages: Messages, names: HeaderNames, location: str) -> None:
    """Raise Refused for ids that are not UTF-8, since the catalog stores them as text."""
    ids = binary(columns.data, messages.transactions[:, 0], messages.transactions[:, 1])
    try:
        ids.cast(pa.string())
    except pa.ArrowInvalid:
        for i, transaction_id in enumerate(ids.to_pylist()):
            try:
                (transaction_id or b"").decode()
            except UnicodeDecodeError:
                offset = int(columns.rows[i, OFFSET])
                raise _refusal(_NOT_UTF8, names, transaction_id, location, offset) from None


_HINT = "Set with {} which header holds the {}."
_SKIP = "If the message is of no use, leave it out of all backups with --skip-message '{}': this is recorded."


def _refusal(code: int, names: HeaderNames, value: bytes | None, location: str, offset: int) -> Refused:
    """Return the error for a problem of the message at `offset`. `value` is what the header in question
    holds."""
    digits = "decimal digits" if names.tid_format == "text" else "8 bytes, most significant first"
    kinds = ", ".join(_KIND_WORDS)
    tid = _HINT.format("--tid-header and --tid-format", "tid")
    transaction = _HINT.format("--transaction-header", "id of a transaction")
    kind = _HINT.format("--kind-header", "kind of a message")
    problem, hint = {
        _NO_TID: (f"the message has no header {names.tid!r}, so that its tid is not known", tid),
        _BAD_TID: (f"the header {names.tid!r} is {_excerpt(value)}, not a tid as {digits}", tid),
        _TWO_TIDS: (f"the message has more than one header {names.tid!r}", tid),
        _TWO_TRANSACTIONS: (f"the message has more than one header {names.transaction!r}", transaction),
        _NOT_UTF8: (
            f"the header {names.transaction!r} is {_excerpt(value)}, which is not UTF-8",
            transaction,
        ),
        _TWO_KINDS: (f"the message has more than one header {names.kind!r}", kind),
        _BAD_KIND: (f"the header {names.kind!r} is {_excerpt(value)}, none of {kinds}", kind),
        _NO_ID: (
            f"the message begins or ends a transaction, and no header {names.transaction!r} names it",
            transaction,
        ),
    }[code]
    return Refused(
        f"{location} at offset {offset}: {problem}.", hint=f"{hint} {_SKIP.format(f'{location}@{offset}')}"
    )


def _excerpt(value: bytes | None) -> str:
    if value is None:
        return "null"
    return f"{value[:_EXCERPT_BYTES]!r}" + ("…" if len(value) > _EXCERPT_BYTES else "")


def watermarks(columns: Columns, messages: Messages) -> list[tuple[int, Watermark | None]]:
    """Return the rows that are watermarks, in order, each with its content; None for one that cannot be
    read."""
    marks: list[tuple[int, Watermark | None]] = []
    for row in np.flatnonzero(messages.kinds == _WATERMARK).tolist():
        start, length = columns.rows[row, VALUE], columns.rows[row, VALUE_LENGTH]
        value = columns.data[start : start + length].tobytes() if length >= 0 else None
        try:
            marks.append((row, read_watermark(value)))
        except (Damaged, UsageProblem):
            marks.append((row, None))
    return marks


def select_messages(
    columns: Columns,
    messages: Messages,
    *,
    upto_tid: int | None = None,
    leave_out: Any = None,
    only: Any = None,
    own_from: int | None = None,
) -> RowMask:
    """Select the messages with a tid up to `upto_tid` that belong to none of the transactions `leave_out`.

    Below the offset `own_from`, where the previous backup has read already, a message is selected only if its
    transaction is one of `only` (None: none is). No watermark is selected.
    """
    selected: RowMask = messages.kinds != _WATERMARK
    if upto_tid is not None:
        selected &= messages.tids <= upto_tid
    if leave_out is not None:
        selected &= ~members(columns.data, messages.transactions, leave_out)
    if own_from is not None:
        own = columns.rows[:, OFFSET] >= own_from
        if not own.all():
            selected &= own if only is None else own | members(columns.data, messages.transactions, only)
    return selected


def select_rows(columns: Columns, rows: RowMask) -> Columns:
    """Return the records that `rows` selects. They share the bytes of `columns`."""
    return columns if rows.all() else replace(columns, rows=columns.rows[rows])


def without(columns: Columns, offsets: Sequence[int]) -> Columns:
    """Return the records without those at `offsets`. They share the bytes of `columns`."""
    return select_rows(columns, ~np.isin(columns.rows[:, OFFSET], offsets))

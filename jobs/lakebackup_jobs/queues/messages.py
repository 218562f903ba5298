"""The headers of an engine's messages, read for all messages of a block at once, and the choice by it.

No Python object is made of a message. What cannot be read is refused by topic, partition and offset: a
message without a known tid could be restored to no point.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lakebackup.errors import Damaged, Refused, UsageProblem
from lakebackup.formats.queues.headers import WATERMARK, Kind
from lakebackup.formats.queues.watermark import read_watermark
from lakebackup_jobs.kafka.format.records import HEADER_COUNT, OFFSET, VALUE, VALUE_LENGTH, Columns
from lakebackup_jobs.kafka.memory import Bytes, Longs, compiled, load8, load64
from lakebackup_jobs.queues.transaction_ids import members

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebackup.formats.queues.headers import HeaderNames
    from lakebackup.formats.queues.watermark import Watermark
    from lakebackup_jobs.queues.transaction_ids import Chosen

_BEGIN, _COMMIT, _ROLLBACK, _WATERMARK = (
    int(kind) for kind in (Kind.BEGIN, Kind.COMMIT, Kind.ROLLBACK, Kind.WATERMARK)
)
_UNKNOWN = 255
#: What may be wrong with a message.
_FINE, _NO_TID, _BAD_TID, _TWO_TIDS, _TWO_TRANSACTIONS, _TWO_KINDS, _BAD_KIND, _NOBODY, _NOT_UTF8 = range(9)
#: Slots of the reading's state: what is wrong, of which row, in which header; whether an id is not ASCII.
_WRONG, _ROW, _HEADER, _WIDE, _STATE = range(5)
_MOST = 2**63 - 1
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Messages:
    """The headers of as many messages, in their order.

    `tids` int64, -1 of a watermark; `kinds` uint8 (headers.Kind); `transactions` int64[n, 2]: position of the
    transaction's id in the block and its length, -1: none.
    """

    tids: Longs
    kinds: Bytes
    transactions: Longs

    def __len__(self) -> int:
        return len(self.tids)

    def take(self, rows: Chosen) -> Messages:
        """Some of them."""
        return self if rows.all() else Messages(self.tids[rows], self.kinds[rows], self.transactions[rows])

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Least and greatest tid; None when there is none."""
        tids = self.tids[self.kinds != _WATERMARK]
        return (int(tids.min()), int(tids.max())) if len(tids) else None


@compiled
def _is(block: Bytes, at: int, length: int, name: Bytes) -> bool:
    if length != name.shape[0]:
        return False
    for i in range(length):  # noqa: SIM110 - compiled
        if block[at + i] != name[i]:
            return False
    return True


@compiled
def _number(block: Bytes, at: int, length: int, binary: bool) -> int:
    """A tid; -1 when the bytes are none."""
    if binary:
        if length != 8 or block[at] > 0x7F:
            return -1
        number = 0
        for i in range(8):
            number = (number << 8) | int(block[at + i])
        return number
    if length < 1:
        return -1
    number = 0
    for i in range(length):
        digit = int(block[at + i]) - 48
        if digit < 0 or digit > 9 or number > (_MOST - digit) // 10:
            return -1
        number = number * 10 + digit
    return number


@compiled
def _kind(block: Bytes, at: int, length: int, words: Bytes, ends: Longs) -> int:
    """A kind by its word, in letters of either case; _UNKNOWN when it is none of `words`, which end at
    `ends`."""
    begin = 0
    for kind in range(ends.shape[0]):
        if ends[kind] - begin == length:
            same = True
            for i in range(length):
                letter = int(block[at + i])
                if letter >= 65 and letter <= 90:
                    letter += 32
                if letter != int(words[begin + i]):
                    same = False
            if same:
                return kind
        begin = ends[kind]
    return _UNKNOWN


@compiled
def _wide(base: int, at: int, length: int) -> bool:
    """Whether bytes are not all ASCII."""
    found = 0
    i = 0
    while i + 8 <= length:
        found |= load64(base + at + i)
        i += 8
    while i < length:
        found |= load8(base + at + i) & 0xFF
        i += 1
    # The upper bit of each of eight bytes, as a signed number.
    return (found & -0x7F7F7F7F7F7F7F80) != 0


@compiled
def _read(  # noqa: C901 (one pass over each message's headers)
    block: Bytes, rows: Longs, found: Longs, tid: Bytes, transaction: Bytes, kind: Bytes, watermark: Bytes,
    binary: bool, words: Bytes, ends: Longs, tids: Longs, kinds: Bytes, transactions: Longs, state: Longs
) -> None:  # fmt: skip
    """Fill `tids`, `kinds` and `transactions` from the headers `found`; stops at the first wrong message."""
    base = block.ctypes.data
    end = 0
    for i in range(rows.shape[0]):
        at = end
        end += rows[i, HEADER_COUNT]
        number, named, done, ours = -2, -1, -1, False
        wrong, header = _FINE, -1
        transactions[i, 0], transactions[i, 1] = 0, -1
        for j in range(at, end):
            name, name_length, value, length = found[j, 0], found[j, 1], found[j, 2], found[j, 3]
            if _is(block, name, name_length, tid):
                if number > -2:
                    wrong, header = _TWO_TIDS, j
                number = _number(block, value, length, binary)
                if number < 0 and wrong == _FINE:
                    wrong, header = _BAD_TID, j
            elif _is(block, name, name_length, transaction):
                if named >= 0 and wrong == _FINE:
                    wrong, header = _TWO_TRANSACTIONS, j
                named = j
                if length > 0:
                    transactions[i, 0], transactions[i, 1] = value, length
                    if _wide(base, value, length):
                        state[_WIDE] = 1
            elif _is(block, name, name_length, kind):
                if done >= 0 and wrong == _FINE:
                    wrong, header = _TWO_KINDS, j
                done = _kind(block, value, length, words, ends) if length >= 0 else _UNKNOWN
                if done == _UNKNOWN and wrong == _FINE:
                    wrong, header = _BAD_KIND, j
            elif _is(block, name, name_length, watermark):
                ours = True
        if ours:
            tids[i], kinds[i], transactions[i, 1] = -1, _WATERMARK, -1
            continue
        if wrong == _FINE and number < 0:
            wrong = _NO_TID
        if wrong == _FINE and done > 0 and transactions[i, 1] < 0:
            wrong = _NOBODY
        if wrong != _FINE:
            state[_WRONG], state[_ROW], state[_HEADER] = wrong, i, header
            return
        tids[i], kinds[i] = number, max(done, 0)


def _array(text: str) -> Bytes:
    return np.frombuffer(text.encode(), np.uint8)


_WORDS = [kind.name.lower() for kind in Kind if kind != Kind.WATERMARK]
_KINDS = _array("".join(_WORDS))
_ENDS: Longs = np.cumsum([len(word) for word in _WORDS]).astype(np.int64)
_MARK = _array(WATERMARK)


def read_messages(columns: Columns, names: HeaderNames, where: str) -> Messages:
    """The headers of some records. `where`: topic and partition, `delta.1[0]`.

    A transaction's header without a value, or with an empty one, names none. Raises Refused, naming the
    offset, for a message without a tid (but a watermark), for a tid, an id or a kind that cannot be read,
    for a header that comes twice, and for the end of no transaction.
    """
    count = len(columns.rows)
    made = Messages(np.empty(count, np.int64), np.empty(count, np.uint8), np.empty((count, 2), np.int64))
    state: Longs = np.zeros(_STATE, np.int64)
    found = columns.headers()
    _read(
        columns.data, columns.rows, found, _array(names.tid), _array(names.transaction), _array(names.kind),
        _MARK, names.tid_format == "int64", _KINDS, _ENDS, made.tids, made.kinds, made.transactions, state
    )  # fmt: skip
    if state[_WRONG]:
        value = None
        if state[_HEADER] >= 0 and found[state[_HEADER], 3] >= 0:
            at, length = found[state[_HEADER], 2:].tolist()
            value = columns.data[at : at + length].tobytes()
        raise _refused(int(state[_WRONG]), names, value, where, int(columns.rows[state[_ROW], OFFSET]))
    if state[_WIDE]:
        _check_ids(columns, made, names, where)
    return made


def _check_ids(columns: Columns, made: Messages, names: HeaderNames, where: str) -> None:
    """Refuse ids that are not UTF-8: the catalog has them as text."""
    import pyarrow as pa

    from lakebackup_jobs.kafka.format.arrow import binary

    ids = binary(columns.data, made.transactions[:, 0], made.transactions[:, 1])
    try:
        ids.cast(pa.string())
    except pa.ArrowInvalid:
        for i, one in enumerate(ids.to_pylist()):
            try:
                (one or b"").decode()
            except UnicodeDecodeError:
                offset = int(columns.rows[i, OFFSET])
                raise _refused(_NOT_UTF8, names, one, where, offset) from None


_HINT = "Set with {} which header holds the {}."
_SKIP = "If the message is of no use, leave it out of all backups with --skip-message '{}': this is recorded."


def _refused(wrong: int, names: HeaderNames, value: bytes | None, where: str, offset: int) -> Refused:
    digits = "decimal digits" if names.tid_format == "text" else "8 bytes, most significant first"
    kinds = ", ".join(_WORDS)
    tid = _HINT.format("--tid-header and --tid-format", "tid")
    transaction = _HINT.format("--transaction-header", "id of a transaction")
    kind = _HINT.format("--kind-header", "kind of a message")
    problem, hint = {
        _NO_TID: (f"the message has no header {names.tid!r}, so that its tid is not known", tid),
        _BAD_TID: (f"the header {names.tid!r} is {_shown(value)}, not a tid as {digits}", tid),
        _TWO_TIDS: (f"the message has more than one header {names.tid!r}", tid),
        _TWO_TRANSACTIONS: (f"the message has more than one header {names.transaction!r}", transaction),
        _NOT_UTF8: (f"the header {names.transaction!r} is {_shown(value)}, which is not UTF-8", transaction),
        _TWO_KINDS: (f"the message has more than one header {names.kind!r}", kind),
        _BAD_KIND: (f"the header {names.kind!r} is {_shown(value)}, none of {kinds}", kind),
        _NOBODY: (
            f"the message begins or ends a transaction, and no header {names.transaction!r} names it",
            transaction,
        ),
    }[wrong]
    return Refused(
        f"{where} at offset {offset}: {problem}.", hint=f"{hint} {_SKIP.format(f'{where}@{offset}')}"
    )


def _shown(value: bytes | None) -> str:
    if value is None:
        return "null"
    return f"{value[:_SHOWN]!r}" + ("…" if len(value) > _SHOWN else "")


def watermarks(columns: Columns, messages: Messages) -> list[tuple[int, Watermark | None]]:
    """The rows that are watermarks, in order, with their content; None: it cannot be read. They are few."""
    found: list[tuple[int, Watermark | None]] = []
    for row in np.flatnonzero(messages.kinds == _WATERMARK).tolist():
        at, length = columns.rows[row, VALUE], columns.rows[row, VALUE_LENGTH]
        value = columns.data[at : at + length].tobytes() if length >= 0 else None
        try:
            found.append((row, read_watermark(value)))
        except (Damaged, UsageProblem):
            found.append((row, None))
    return found


def chosen(
    columns: Columns,
    messages: Messages,
    *,
    upto_tid: int | None = None,
    leave_out: Any = None,
    only: Any = None,
    before: int | None = None,
) -> Chosen:
    """Which messages have a tid up to `upto_tid`, and are of none of the transactions `leave_out`.

    Those at offsets below `before` only if their transaction is one of `only`. Watermarks never are.
    """
    found: Chosen = messages.kinds != _WATERMARK
    if upto_tid is not None:
        found &= messages.tids <= upto_tid
    if leave_out is not None:
        found &= ~members(columns.data, messages.transactions, leave_out)
    if before is not None:
        front = columns.rows[:, OFFSET] < before
        if front.any():
            found &= ~front if only is None else ~front | members(columns.data, messages.transactions, only)
    return found


def taken(columns: Columns, rows: Chosen) -> Columns:
    """Some of the records, over the same bytes."""
    return columns if rows.all() else replace(columns, rows=columns.rows[rows])


def without(columns: Columns, offsets: Sequence[int]) -> Columns:
    """The records but those at some offsets, over the same bytes."""
    return taken(columns, ~np.isin(columns.rows[:, OFFSET], offsets))

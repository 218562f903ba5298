"""Headers of messages, compared with a plain reading in Python. Damaged bytes must never crash the reader."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakebackup.errors import Damaged, NotFound, Refused
from lakebackup.formats.queues.headers import WATERMARK, HeaderNames, Kind
from lakebackup.formats.queues.watermark import headers_of
from lakebackup.plan.partitions import Partition
from lakebackup.plan.queues.backup import QueueRange
from lakebackup.rules.layout import scan_folder, scan_path, scan_ranges_path
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.format.records import OFFSET, BlockStats, Columns, decode_block, encode_record
from lakebackup_jobs.kafka.format.schemas import FORMAT_V2
from lakebackup_jobs.queues import transaction_scan as scan_module
from lakebackup_jobs.queues.backup.copy_task import _Look
from lakebackup_jobs.queues.messages import Messages, read_messages, select_messages, select_rows
from lakebackup_jobs.queues.transaction_ids import members
from lakebackup_jobs.queues.transaction_scan import (
    SCAN_SCHEMA,
    RangeScan,
    ScanWriter,
    TaskScans,
    TransactionScan,
    read_ranges,
)

Headers = list[tuple[str, bytes | None]]
ParsedMessage = tuple[int, int, bytes | None]
BACKUP = "20260131T134511Z-0a1b2c3d"
WORDS = {"write": 0, "begin": 1, "commit": 2, "rollback": 3}
NAMES = [
    HeaderNames(),
    HeaderNames(tid="x-tid", transaction="é-transaction", kind="k", tid_format="int64"),
]
ids = st.sampled_from(
    [b"a", b"b", b"t-17", b"t-18", "tränsaktion-8".encode(), b"0123456789abcdef", b"x" * 70]
)


# --- the plain reading


def tid_of(value: bytes | None, names: HeaderNames) -> int | None:
    if value is None:
        return None
    if names.tid_format == "int64":
        number = int.from_bytes(value, signed=True) if len(value) == 8 else -1
    else:
        number = int(value) if value and all(48 <= byte <= 57 for byte in value) else -1
    return number if 0 <= number < 2**63 else None


def parse_headers(headers: Headers, names: HeaderNames) -> ParsedMessage | None:
    """(tid, kind, transaction) as the documentation defines them; None if the headers must be refused."""
    if any(name == WATERMARK for name, _ in headers):
        return -1, Kind.WATERMARK, None
    tids, transactions, kinds = (
        [value for key, value in headers if key == name]
        for name in (names.tid, names.transaction, names.kind)
    )
    if len(tids) != 1 or len(transactions) > 1 or len(kinds) > 1:
        return None
    tid = tid_of(tids[0], names)
    kind = 0 if not kinds else WORDS.get((kinds[0] or b"?").decode("latin-1").lower())
    transaction = (transactions[0] or None) if transactions else None
    try:
        (transaction or b"").decode()
    except UnicodeDecodeError:
        return None
    if tid is None or kind is None or (kind and transaction is None):
        return None
    return tid, kind, transaction


# --- messages


def encode_tid(tid: int, names: HeaderNames) -> bytes:
    return tid.to_bytes(8) if names.tid_format == "int64" else str(tid).encode()


@st.composite
def good_headers(draw: st.DrawFn, names: HeaderNames) -> Headers:
    if draw(st.integers(0, 9)) == 0:
        return list(headers_of(names))
    headers: Headers = [(names.tid, encode_tid(draw(st.integers(0, 30) | st.integers(0, 2**63 - 1)), names))]
    transaction = draw(st.none() | ids)
    if transaction is not None:
        headers.append((names.transaction, transaction))
    else:
        headers += draw(st.sampled_from([[], [(names.transaction, None)], [(names.transaction, b"")]]))
    words = list(WORDS) if transaction is not None else ["write"]
    if draw(st.booleans()):
        word = draw(st.sampled_from(words))
        headers.append((names.kind, draw(st.sampled_from([word, word.upper(), word.title()])).encode()))
    other_names = st.sampled_from(["other", "tid2", "ti", "TID", "", "kinds", "ki", "transactio"])
    headers += draw(st.lists(st.tuples(other_names, st.none() | st.binary(max_size=9)), max_size=2))
    return draw(st.permutations(headers))


def any_headers(names: HeaderNames) -> st.SearchStrategy[Headers]:
    """Good headers, and good headers with something wrong."""
    bad = st.sampled_from([names.tid, names.transaction, names.kind]).flatmap(
        lambda name: st.tuples(st.just(name), st.none() | st.binary(max_size=20) | st.just(b"9" * 19))
    )
    spoiled = st.tuples(good_headers(names), st.lists(bad, max_size=2), st.integers(0, 4)).map(
        lambda parts: parts[0][: parts[2]] + parts[1]
    )
    return st.integers(0, 5).flatmap(lambda n: good_headers(names) if n else spoiled)


def block_of(messages: list[Headers], first: int = 0) -> Columns:
    data = b"".join(
        encode_record("delta.1", 3, first + 2 * i, 1000 + i, 1, b"k%d" % i, b"value", headers)
        for i, headers in enumerate(messages)
    )
    return decode_block(data, len(messages))


def parsed_messages(columns: Columns, messages: Messages) -> list[ParsedMessage]:
    parsed = []
    for i in range(len(messages)):
        start, length = messages.transactions[i].tolist()
        transaction = None if length < 0 else columns.data[start : start + length].tobytes()
        parsed.append((int(messages.tids[i]), int(messages.kinds[i]), transaction))
    return parsed


def good_blocks(names: HeaderNames) -> st.SearchStrategy[list[Headers]]:
    return st.lists(good_headers(names), max_size=25)


@given(st.sampled_from(NAMES).flatmap(lambda names: st.tuples(st.just(names), good_blocks(names))))
def test_headers_are_parsed_like_the_plain_reading(case: tuple[HeaderNames, list[Headers]]) -> None:
    names, rows = case
    columns = block_of(rows)
    messages = read_messages(columns, names, "delta.1[3]")
    assert parsed_messages(columns, messages) == [parse_headers(headers, names) for headers in rows]
    tids = [parsed[0] for headers in rows if (parsed := parse_headers(headers, names)) and parsed[0] >= 0]
    assert messages.bounds == ((min(tids), max(tids)) if tids else None)


@given(
    st.sampled_from(NAMES).flatmap(
        lambda names: st.tuples(st.just(names), st.lists(any_headers(names), max_size=12))
    )
)
@example((HeaderNames(), [[("tid", b"9223372036854775807")]]))
@example((HeaderNames(), [[("tid", b"9223372036854775808")]]))
@example((HeaderNames(), [[("tid", b"00000000000000000000000000017")]]))
@example((HeaderNames(), [[("tid", b"-1")]]))
@example((HeaderNames(), [[("tid", b"+1")]]))
@example((HeaderNames(), [[("tid", b" 1")]]))
@example((HeaderNames(), [[("tid", "\uff11".encode())]]))
@example((HeaderNames(), [[("tid", b"1"), ("transaction", b"\xff")]]))
@example((HeaderNames(), [[("tid", b"1"), ("transaction", b"0123456\x80")]]))
@example((HeaderNames(), [[("tid", b"1"), ("kind", b"watermark")]]))
@example((HeaderNames(), [[("tid", b"1"), ("kind", None)]]))
@example((HeaderNames(), [[("tid", b"1"), ("kind", b"commit"), ("transaction", b"")]]))
@example((NAMES[1], [[("x-tid", b"\x80" + b"\0" * 7)]]))
def test_unreadable_headers_are_refused_with_their_offset(case: tuple[HeaderNames, list[Headers]]) -> None:
    names, rows = case
    expected = [parse_headers(headers, names) for headers in rows]
    columns = block_of(rows, first=100)
    if None not in expected:
        assert parsed_messages(columns, read_messages(columns, names, "delta.1[3]")) == expected
        return
    with pytest.raises(Refused) as refused:
        read_messages(columns, names, "delta.1[3]")
    bad_offsets = [100 + 2 * i for i, message in enumerate(expected) if message is None]
    assert any(refused.value.message.startswith(f"delta.1[3] at offset {offset}: ") for offset in bad_offsets)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ([], "at offset 7: the message has no header 'tid'"),
        ([("tid", None)], "the header 'tid' is null, not a tid as decimal digits"),
        ([("tid", b"x" * 99)], "…, not a tid"),
        ([("tid", b"1"), ("tid", b"1")], "more than one header 'tid'"),
        ([("tid", b"1"), ("kind", b"abort")], "the header 'kind' is b'abort', none of write, begin, commit"),
        ([("tid", b"1"), ("kind", b"begin")], "no header 'transaction' names it"),
        ([("tid", b"1"), ("transaction", b"\xff")], "which is not UTF-8"),
    ],
)
def test_a_refusal_says_what_is_wrong(headers: Headers, text: str) -> None:
    with pytest.raises(Refused) as refused:
        read_messages(block_of([headers], first=7), HeaderNames(), "delta.1[3]")
    assert text in refused.value.message


@given(good_blocks(HeaderNames()), st.data())
def test_damaged_bytes_never_crash(rows: list[Headers], data: st.DataObject) -> None:
    block = bytearray(block_of(rows).data.tobytes())
    for _ in range(data.draw(st.integers(0, 4)) if block else 0):
        block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
    try:
        columns = decode_block(bytes(block), len(rows), FORMAT_V2)
        messages = read_messages(columns, HeaderNames(), "w")
        batches: list[pa.RecordBatch] = []
        scan = TransactionScan(Partition("s", "e", "0"), batches.append)
        scan.add(columns, messages, select_messages(columns, messages))
        scan.flush()
        pa.Table.from_batches(batches, SCAN_SCHEMA).validate(full=True)
    except (Damaged, Refused):
        return
    assert len(messages) == len(rows)


# --- chosen messages


@given(
    good_blocks(HeaderNames()),
    st.none() | st.integers(-1, 31),
    st.none() | st.sets(ids | st.binary(max_size=3), max_size=9),
    st.none() | st.sets(ids | st.binary(max_size=3), max_size=9),
    st.none() | st.integers(0, 60),
)
def test_messages_are_chosen_by_tid_transaction_and_offset(
    rows: list[Headers],
    upto_tid: int | None,
    leave_out: set[bytes] | None,
    only: set[bytes] | None,
    own_from: int | None,
) -> None:
    columns = block_of(rows)
    messages = read_messages(columns, HeaderNames(), "w")
    sets = {
        "leave_out": None if leave_out is None else pa.array(leave_out, pa.binary()),
        "only": None if only is None else pa.array(only, pa.binary()),
    }
    expected = []
    for i, headers in enumerate(rows):
        tid, kind, transaction = parse_headers(headers, HeaderNames()) or (0, 0, None)
        expected.append(
            kind != Kind.WATERMARK
            and (upto_tid is None or tid <= upto_tid)
            and transaction not in (leave_out or ())
            and (own_from is None or 2 * i >= own_from or transaction in (only or ()))
        )
    mask = select_messages(columns, messages, upto_tid=upto_tid, own_from=own_from, **sets)
    assert mask.tolist() == expected
    chosen_columns = select_rows(columns, mask)
    assert chosen_columns.rows[:, OFFSET].tolist() == [
        2 * i for i, is_chosen in enumerate(expected) if is_chosen
    ]
    assert parsed_messages(chosen_columns, messages.select(mask)) == [
        message
        for message, is_chosen in zip(parsed_messages(columns, messages), expected, strict=True)
        if is_chosen
    ]


@given(
    st.lists(st.sets(st.binary(max_size=9), max_size=50), max_size=3),
    st.lists(st.none() | st.binary(max_size=9), max_size=50),
)
def test_members_of_a_column_of_ids(chunks: list[set[bytes]], candidates: list[bytes | None]) -> None:
    ids = pa.chunked_array([pa.array(chunk, pa.binary()) for chunk in chunks], pa.binary())
    ends = np.cumsum([len(candidate or b"") for candidate in candidates], dtype=np.int64)
    lengths = np.array([-1 if candidate is None else len(candidate) for candidate in candidates], np.int64)
    pieces = np.column_stack((ends - np.maximum(lengths, 0), lengths))
    block = np.frombuffer(b"".join(candidate or b"" for candidate in candidates), np.uint8)
    all_ids = set().union(*chunks)
    assert members(block, pieces, ids).tolist() == [candidate in all_ids for candidate in candidates]


# --- scanned transactions


def totals_of(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int, int, bool]]:
    """First position, first tid, entries and `ended` of each transaction, whatever the order of the rows."""
    totals: dict[str, tuple[int, int, int, bool]] = {}
    for row in rows:
        total = (row["first_position"], row["first_tid"], row["entries"], row["ended"])
        if earlier := totals.get(row["transaction_id"]):
            first = min(earlier, total)
            total = (first[0], first[1], earlier[2] + total[2], earlier[3] or total[3])
        totals[row["transaction_id"]] = total
    return totals


@given(
    st.lists(good_blocks(HeaderNames()), max_size=5),
    st.integers(0, 150),
    st.integers(1, 40),
)
def test_scanned_transactions_add_up(blocks: list[list[Headers]], own_from: int, held_limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_module, "BUFFERED_MESSAGES", held_limit)
        batches: list[pa.RecordBatch] = []
        scan = TransactionScan(Partition("delta.1", "e" * 32, "3"), batches.append)
        expected: list[dict[str, Any]] = []
        tids: list[tuple[int, int]] = []
        first = 0
        for rows in blocks:
            columns = block_of(rows, first)
            messages = read_messages(columns, HeaderNames(), "w")
            scan.add(columns, messages, select_messages(columns, messages), own_from)
            for i, headers in enumerate(rows):
                tid, kind, transaction = parse_headers(headers, HeaderNames()) or (0, 0, None)
                offset = first + 2 * i
                if kind != Kind.WATERMARK:
                    tids.append((tid, -offset))
                if transaction is not None:
                    row = {"transaction_id": transaction.decode(), "first_position": offset, "first_tid": tid}
                    expected.append({**row, "entries": int(offset >= own_from), "ended": kind >= Kind.COMMIT})
            first += 2 * len(rows)
        scan.flush()
    assert all(0 < len(batch) <= held_limit for batch in batches)
    table = pa.Table.from_batches(batches, SCAN_SCHEMA)
    table.validate(full=True)
    assert totals_of(table.to_pylist()) == totals_of(expected)
    assert {(r["scope"], r["epoch"], r["region"]) for r in table.to_pylist()} <= {("delta.1", "e" * 32, "3")}
    tid, negated = max(tids, default=(0, 0))
    assert scan.range(0, first) == RangeScan(
        "delta.1", "e" * 32, "3", 0, first, len(tids), sum(-negated < own_from for _, negated in tids),
        *((min(tids)[0], tid, -negated) if tids else (None, None, None))
    )  # fmt: skip


def test_only_chosen_rows_are_scanned() -> None:
    rows: list[Headers] = [[("tid", b"%d" % i), ("transaction", b"t%d" % i)] for i in range(4)]
    columns = block_of(rows)
    messages = read_messages(columns, HeaderNames(), "w")
    batches: list[pa.RecordBatch] = []
    scan = TransactionScan(Partition("s", "e", "0"), batches.append)
    scan.add(columns, messages, np.array([False, True, False, True]))
    scan.flush()
    assert [name for batch in batches for name in batch["transaction_id"].to_pylist()] == ["t1", "t3"]
    assert (scan.range(0, 8).first_tid, scan.range(0, 8).entries) == (1, 2)


@pytest.mark.parametrize("own_from", [5, 7, 8])
def test_a_watermark_at_the_first_own_offset_is_refused_too(own_from: int) -> None:
    names = HeaderNames()
    columns = block_of([[("tid", b"1")], list(headers_of(names)), [("tid", b"1")]], 5)  # offsets 5, 7 and 9
    messages = read_messages(columns, names, "w")
    span = QueueRange("delta", "e", "0", 5, 10, 0, own_from)
    job: Any = SimpleNamespace(names=names, keep=True, watermarks=frozenset())
    look = _Look(job, span, TransactionScan(span, list.clear), (), str)
    if own_from > 7:  # the watermark lies before the backup's own part
        look._mark(columns, messages, select_messages(columns, messages))
        return
    with pytest.raises(Refused, match="at offset 7: what follows was written by a restore"):
        look._mark(columns, messages, select_messages(columns, messages))


def test_stored_scans_are_read_back_unless_damaged(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    columns = block_of([[("tid", b"%d" % i), ("transaction", b"t%d" % (i % 3))] for i in range(10)])
    batches: list[pa.RecordBatch] = []
    scans = [TransactionScan(Partition("s", "e", region), batches.append) for region in "01"]
    for scan in scans:
        scan.add(columns, read_messages(columns, HeaderNames(), "w"), np.full(10, True))
        scan.flush()
    ranges = [scan.range(0, 20) for scan in scans]
    for _ in range(2):  # a task that runs twice writes the same
        with ScanWriter(storage, "graph", BACKUP, 4) as writer:
            for batch in batches:
                writer.sink(batch)
            writer.commit(ranges)
    with ScanWriter(storage, "graph", BACKUP, 5) as writer:
        writer.commit([])
    with suppress(KeyError), ScanWriter(storage, "graph", BACKUP, 6) as writer:
        writer.sink(batches[0])
        raise KeyError
    assert scan_path("graph", BACKUP, 6) not in {f.path for f in storage.list(scan_folder("graph", BACKUP))}
    assert read_ranges(storage, "graph", BACKUP, 4) == (ranges, 6)
    assert read_ranges(storage, "graph", BACKUP, 5) == ([], 0)
    stored_scans = TaskScans(storage.uri, "graph", BACKUP, {})
    assert pa.Table.from_batches(stored_scans.rows(4)) == pa.Table.from_batches(batches)
    assert list(stored_scans.rows(5)) == []
    with pytest.raises(NotFound):
        list(stored_scans.rows(6))
    data = storage.get(scan_path("graph", BACKUP, 4))
    for torn in (data[:-20], data[:60] + b"??" + data[62:], b""):
        storage.put(scan_path("graph", BACKUP, 4), torn)
        with pytest.raises(Damaged):
            list(stored_scans.rows(4))
    storage.delete(scan_path("graph", BACKUP, 4))
    with pytest.raises(Damaged):
        list(stored_scans.rows(4))
    content = json.loads(storage.get(scan_ranges_path("graph", BACKUP, 4)))
    storage.put(scan_ranges_path("graph", BACKUP, 4), json.dumps(content | {"rows": 0}).encode())
    with pytest.raises(Damaged):
        read_ranges(storage, "graph", BACKUP, 4)


def test_tids_of_neighbouring_blocks_add_up() -> None:
    stats = BlockStats(1, 2, 2, 1, 2, 0, 1, b"k", b"k")
    both = replace(stats, min_tid=5, max_tid=9) + replace(stats, min_tid=3, max_tid=4)
    assert (both.min_tid, both.max_tid) == (3, 9)
    assert ((both + stats).min_tid, (both + stats).max_tid) == (None, None)
